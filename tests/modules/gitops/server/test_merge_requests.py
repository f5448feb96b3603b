"""Previews of merge requests, from GitLab's webhook to the comment there."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater

from modules.gitops.server import comments, merge_requests
from modules.gitops.server.comment_text import MARK, MAX_TEXT, Asked, comment
from modules.gitops.server.comments import Comments
from modules.gitops.server.config import (
    MergeRequestSettings,
    WebhookFormat,
    WebhookSettings,
)
from modules.gitops.server.merge_requests import MergeRequests
from modules.gitops.wire import control_pb2 as pb
from tests.fakes.notes import FakeNotes
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import OTHER, URL, HalvesTestCase, text
from tunnel.api import RepositorySettings
from tunnel.errors import CallError, Status
from tunnel.testing.ends import AGENT
from tunnel.testing.web import Answer

SECRET, TOKEN = "the-secret-of-webhooks", "glpat-0123456789abcdef"

#: Whose token kas has.
ME = 9

HEAD = "refs/merge-requests/7/head"


def event(commit: str, **changed: Any) -> dict[str, Any]:
    """What GitLab's webhook says of merge request 7 of apps."""
    attributes = {
        "iid": 7,
        "state": "opened",
        "action": "open",
        "source_project_id": 5,
        "target_project_id": 5,
        "source_branch": "next",
        "target_branch": "main",
        "last_commit": {"id": commit},
        **changed,
    }
    return {
        "object_kind": "merge_request",
        "project": {
            "id": 5,
            "path_with_namespace": "apps",
            "default_branch": "main",
        },
        "object_attributes": attributes,
    }


def of_project(
    project_id: int, said: dict[str, Any], repositories: Any = None
) -> dict[str, Any]:
    """
    The same merge request of another project.

    :param repositories: where agents are to read it.
    """
    attributes = {
        **said["object_attributes"],
        "source_project_id": project_id,
        "target_project_id": project_id,
    }
    name = "other" if repositories is not None else f"p{project_id}"
    if repositories is not None:
        repositories[name] = RepositorySettings(url=OTHER)
    project = {**said["project"], "id": project_id, "path_with_namespace": name}
    return {**said, "project": project, "object_attributes": attributes}


class Agent:
    """
    Says that it has projects, and takes its time for a preview.

    :ivar most: previews that it was asked for at the same time.
    """

    def __init__(
        self, clock: Clock, projects: int, seconds: float, repository: str = "apps"
    ) -> None:
        self._clock, self._projects, self._seconds = clock, projects, seconds
        self._repository = repository
        self._now = self.most = 0
        self.objects = 0

    async def call(self, method: str, request: Any, *, timeout: float) -> Any:
        if method == "GetStatus":
            names = [f"p{number}" for number in range(self._projects)]
            return pb.GetStatusResponse(
                projects=[
                    pb.ProjectStatus(id=one, repository=self._repository)
                    for one in names
                ]
            )
        assert request.merge_request
        self._now += 1
        self.most = max(self.most, self._now)
        await deferLater(self._clock, min(self._seconds, timeout))
        self._now -= 1
        if self._seconds > timeout:
            raise CallError(Status.DEADLINE_EXCEEDED, "too late")
        objects = [pb.ObjectPreview()] * self.objects
        return pb.PreviewResponse(commit="c" * 40, objects=objects)


class MergeRequestCase(HalvesTestCase):
    """kas, an agent, and GitLab."""

    forks = False

    def setUp(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        secret, token = folder / "secret", folder / "token"
        secret.write_text(SECRET)
        token.write_text(TOKEN)
        self.gitlab = FakeNotes({TOKEN: ME, "glpat-of-an-author": 8})
        self.http = RequestTraversalAgent(self.gitlab.app.resource())
        self.settings = {
            "merge_requests": MergeRequestSettings(
                gitlab_url="https://gitlab.example.org/",
                webhook_secret_file=secret,
                token_file=token,
                forks=self.forks,
            )
        }
        super().setUp()
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps"})
        self.passes(1)

    def propose(self, *objects: Any) -> str:
        """A commit of the merge request."""
        return self.apps.commit({"a.yaml": text(*objects)}, HEAD)

    def tell(self, said: Any, secret: str = SECRET, known: bool = True) -> Answer:
        """
        Call the webhook.

        :param known: GitLab's API says the same.
        """
        if known and isinstance(said, dict) and "last_commit" in str(said):
            self.gitlab.know(said)
        answer = self.pair.visit(
            "/gitops/merge-requests",
            "POST",
            said if isinstance(said, bytes) else json.dumps(said).encode(),
            X_Gitlab_Token=secret,
        )
        self.settle()
        return answer

    def settle(self) -> None:
        gitlab: Any = self.http
        for _ in range(20):
            self.pair.settle()
            gitlab.flush()
            self.clock.advance(0)

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1)
            self.settle()

    def bodies(self, number: int = 7) -> list[str]:
        return [one["body"] for one in self.gitlab.notes.get((5, number), [])]

    def body(self) -> str:
        (found,) = self.bodies()
        return found


class MergeRequestTests(MergeRequestCase):
    """`modules.gitops.server.merge_requests` and `modules.gitops.server.comments`."""

    def tearDown(self) -> None:
        self.assertEqual(self.gitlab.violations, [])

    def test_a_comment(self) -> None:
        """One that follows the merge request."""
        new = object_("m001")
        new["data"] = {"n": "changed"}
        commit = self.propose(new, *config_maps(3))
        self.assertEqual(self.tell(event(commit)).status, 202)
        body = self.body()
        self.assertTrue(body.startswith(MARK))
        self.assertIn(f"`{commit[:12]}`", body)
        self.assertIn("`agent-1`, project `apps`: 1 change, 1 create, 1 prune", body)
        self.assertIn("~ ConfigMap default/m001  change  a.yaml:1", body)
        self.assertIn("/data/n: ", body)
        self.assertIn("- ConfigMap default/m002  prune", body)
        again = self.propose(*config_maps(1, 2))
        self.tell(event(again, action="update", oldrev=commit))
        # kas does not look at a ref twice in a second.
        self.wait(merge_requests.PAUSE_FIRST)
        self.assertIn(f"`{again[:12]}`", self.body())
        self.assertIn("project `apps`: 2 unchanged", self.body())

    def test_who_calls(self) -> None:
        commit = self.propose(*config_maps(1))
        for secret in ("", "another-secret-of-webhooks", SECRET + "x"):
            self.assertEqual(self.tell(event(commit), secret).status, 401)
        self.assertEqual(self.bodies(), [])

    def test_bodies_that_are_none(self) -> None:
        whole = event("c" * 40)
        cut = {**whole, "object_attributes": {"state": "opened", "action": "open"}}
        for body in (b"{", b"[]", b"[" * 100_000, cut, event("c" * 40, iid="7")):
            self.assertEqual(self.tell(body, known=False).status, 400)
        self.assertEqual(self.tell(b" " * (merge_requests.MAX_BODY + 1)).status, 413)
        self.assertEqual(self.bodies(), [])

    def test_what_is_not_previewed(self) -> None:
        """Other events, other texts of it, other branches, merge requests of forks."""
        commit = self.propose(*config_maps(1))
        for said in (
            {**event(commit), "object_kind": "pipeline"},
            event(commit, action="update"),
            event(commit, action="merge", state="merged"),
        ):
            self.assertEqual(self.tell(said).status, 200)
        self.assertEqual(self.gitlab.asked, {})
        self.assertEqual(self.tell(event(commit, target_branch="other")).status, 202)
        self.assertEqual(self.tell(event(commit, source_project_id=6)).status, 202)
        self.assertIn("merge request 7 of apps comes from a fork", self.logged())
        self.assertEqual(self.bodies(), [])

    def test_forged_events(self) -> None:
        """Whatever the body says, GitLab's word counts."""
        commit = self.propose(*config_maps(1))
        truth = event(commit, target_branch="other")
        self.gitlab.know(truth)
        self.assertEqual(self.tell(event(commit), known=False).status, 202)
        self.gitlab.know(event(commit, source_project_id=6))
        self.tell(event(commit), known=False)
        self.gitlab.know(event(commit, state="merged"))
        self.tell(event(commit), known=False)
        # Another project's path, and a target that is another project.
        self.gitlab.know(event(commit))
        self.gitlab.projects[5]["path_with_namespace"] = "group/secret"
        self.tell(event(commit), known=False)
        self.gitlab.know(event(commit, target_project_id=6))
        self.tell(event(commit), known=False)
        self.gitlab.merge_requests.clear()
        self.tell(event(commit), known=False)
        self.assertEqual(self.bodies(), [])
        self.assertIn("the user of the token cannot see", self.logged())
        self.wait(merge_requests.ROUNDS_SECONDS)
        self.gitlab.merge_requests[5, 7] = {"iid": 7}
        self.tell(event(commit), known=False)
        self.assertIn(
            "cannot read GitLab's response about the merge request", self.logged()
        )
        # A body that lies about the commit changes nothing either.
        self.gitlab.know(event(commit))
        self.tell(event("f" * 40, target_branch="x", source_project_id=9), known=False)
        self.assertIn(f"`{commit[:12]}`", self.body())

    def test_an_agent_that_may_not_read_it(self) -> None:
        """Whatever it says of the repository is in no comment there."""
        settings = self.server._settings.repositories
        settings["apps"] = RepositorySettings(url=URL, agents=("others",))
        commit = self.propose(*config_maps(1))
        self.tell(event(commit))
        self.assertEqual(self.bodies(), [])
        self.assertEqual(set(self.gitlab.asked), {"GET"})
        # Its own project at GitLab it may read, whatever kas' file says.
        agent = attrs.evolve(AGENT, project_id=5)
        self.patch(self.server._api.agents, "connected", lambda: [agent])
        self.tell(event(commit))
        self.assertIn("`agent-1`, project `apps`", self.body())

    def test_an_agent_of_gitlab_at_another_kas(self) -> None:
        """Its project is not known here, and a bare name is not the agent's."""
        settings = self.server._settings.repositories
        agent = attrs.evolve(AGENT, project_id=6)
        self.patch(self.server._api.agents, "connected", lambda: [agent])
        for patterns in (("*",), ("agent-1",), ("group/other:agent-1",)):
            settings["apps"] = RepositorySettings(url=URL, agents=patterns)
            self.tell(event(self.propose(*config_maps(1))))
            self.assertEqual(self.bodies(), [], patterns)
        settings["apps"] = RepositorySettings(url=URL, agents=("*:agent-1",))
        self.tell(event(self.propose(*config_maps(1))))
        self.assertIn("`agent-1`, project `apps`", self.body())

    def test_agents_that_are_named(self) -> None:
        """A bare name in ``agents`` names no agent of GitLab."""
        self.gitlab.know(event(self.propose(*config_maps(1))))
        agent = attrs.evolve(AGENT, project_id=5)
        self.patch(self.server._api.agents, "connected", lambda: [agent])
        page = self.server._merge_requests
        page._settings = attrs.evolve(page._settings, agents=("agent-*",))
        self.tell(event("c" * 40), known=False)
        self.assertEqual(self.bodies(), [])
        page._settings = attrs.evolve(page._settings, agents=("*:agent-*",))
        self.tell(event("c" * 40), known=False)
        self.assertIn("`agent-1`, project `apps`", self.body())

    def test_an_agent_that_takes_its_time(self) -> None:
        """It has many projects: others get their part, and the next one its turn."""
        api = self.server._api
        agents = [attrs.evolve(AGENT, agent_id=one, agent_name=one) for one in "ab"]
        self.patch(api.agents, "connected", lambda: agents)
        clients = {"a": Agent(self.clock, 50, 1e9), "b": Agent(self.clock, 1, 0)}
        self.patch(api.calls, "client", lambda service, agent_id: clients[agent_id])
        self.tell(event("c" * 40))
        self.wait(merge_requests.ALL_SECONDS + 1)
        body = self.body()
        self.assertIn("`b`, project `p0`: no object", body)
        self.assertIn("other previews took 300 s", body)
        self.assertIn("31 more projects follow", body)

    def test_an_agent_with_too_many_objects(self) -> None:
        """kas looks at no more of them than agentk sends."""
        agent = attrs.evolve(AGENT, agent_id="a", agent_name="a")
        self.patch(self.server._api.agents, "connected", lambda: [agent])
        client = Agent(self.clock, 1, 0)
        client.objects = merge_requests.MAX_OBJECTS + 1
        self.patch(self.server._api.calls, "client", lambda service, agent_id: client)
        self.tell(event("c" * 40))
        self.assertIn(f"{merge_requests.MAX_OBJECTS} unknown", self.body())

    def test_another_branch_that_is_followed(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1))}, "refs/heads/prod")
        self.configure({"id": "apps", "ref": {"branch": "prod"}})
        self.passes(1)
        commit = self.propose(*config_maps(1))
        self.tell(event(commit))
        self.assertEqual(self.bodies(), [])
        self.assertIn(
            "merge request 7 of apps gets no comment: none of 1 agents has a project "
            "that follows main",
            self.logged(),
        )
        self.tell(event(commit, target_branch="prod"))
        self.assertIn("1 unchanged", self.body())

    def test_a_comment_that_looks_like_ours(self) -> None:
        """Of somebody else: it is left, and ours is written."""
        self.gitlab.add(8, f"{MARK} nothing changes")
        self.tell(event(self.propose(*config_maps(1))))
        theirs, ours = self.bodies()
        self.assertEqual(theirs, f"{MARK} nothing changes")
        self.assertIn("1 prune", ours)

    def test_two_comments(self) -> None:
        """Two kas wrote at the same moment: one is left, among hundreds."""
        for number in range(150):
            self.gitlab.add(8, f"words {number}")
        self.gitlab.add(ME, f"{MARK} old")
        self.gitlab.add(ME, f"{MARK} older")
        self.tell(event(self.propose(*config_maps(1))))
        ours = [one for one in self.bodies() if one.startswith(MARK)]
        self.assertEqual(len(ours), 1)
        self.assertIn("1 prune", ours[0])

    def test_one_that_is_known(self) -> None:
        """It is changed at once: however much others write there, it is found."""
        first = self.propose(*config_maps(1))
        self.tell(event(first))
        for _ in range(5):
            self.gitlab.add(8, "y" * 999_999)
        self.gitlab.asked.clear()
        second = self.propose(*config_maps(1, 2))
        self.tell(event(second, action="update", oldrev=first))
        self.wait(merge_requests.PAUSE_FIRST)
        self.assertIn("2 unchanged", self.bodies()[0])
        # Of the merge request, its project, the user of the token, and the comment;
        # of the merge request again before and after the comment.
        self.assertEqual(self.gitlab.asked, {"GET": 6, "PUT": 1})

    def test_one_that_the_store_names_wrongly(self) -> None:
        """A comment that is not ours is not changed, whatever the store says."""
        store = self.server._merge_requests._comments._store
        theirs = self.gitlab.add(8, f"{MARK} of another user")
        other = self.gitlab.add(ME, "of the user of the token, by hand")
        before = self.bodies()
        for number, planted in enumerate((theirs, other)):
            self.pair.run(store.set("5-7", f"{planted} {'0' * 64}".encode()))
            self.tell(event(self.propose(*config_maps(1, number + 1))))
            self.wait(merge_requests.PAUSE_FIRST)
            self.assertEqual(self.bodies()[:2], before)
            self.assertEqual(len(self.bodies()), 3)
        self.assertEqual(self.gitlab.violations, [])

    def test_damaged_value_of_the_store(self) -> None:
        """It is as if the store knew no comment."""
        store = self.server._merge_requests._comments._store
        for number, value in enumerate((b"", b"\xff", b"-1 x", b"9" * 5000)):
            self.pair.run(store.set("5-7", value))
            self.tell(event(self.propose(*config_maps(1, number + 1))))
            self.wait(merge_requests.PAUSE_FIRST)
            self.assertEqual(len(self.bodies()), 1)

    def test_another_kas_that_names_one_wrongly(self) -> None:
        """The same, where the store names it while ours is made."""
        add = FakeNotes.add
        store = self.server._merge_requests._comments._store

        def meanwhile(gitlab: FakeNotes, user: int, text: str, key: Any) -> int:
            theirs = add(gitlab, 8, "words", key)
            self.pair.run(store.set("5-7", f"{theirs} {'0' * 64}".encode()))
            return add(gitlab, user, text, key)

        self.patch(FakeNotes, "add", meanwhile)
        self.tell(event(self.propose(*config_maps(1))))
        theirs, ours = self.bodies()
        self.assertEqual(theirs, "words")
        self.assertIn("1 prune", ours)

    def test_too_much_to_look_through(self) -> None:
        for _ in range(5):
            self.gitlab.add(8, "y" * 999_999)
        self.tell(event(self.propose(*config_maps(1))))
        self.assertIn("a response has more than 4 MiB", self.logged())

    def test_one_that_was_deleted(self) -> None:
        """By somebody: there is another one with the next commit."""
        first = self.propose(*config_maps(1))
        self.tell(event(first))
        self.gitlab.notes.clear()
        second = self.propose(*config_maps(1, 2))
        self.tell(event(second, action="update", oldrev=first))
        self.wait(merge_requests.PAUSE_FIRST)
        self.assertIn("2 unchanged", self.body())

    def test_two_kas(self) -> None:
        """One that made a comment meanwhile: it is changed, and ours taken back."""
        add = FakeNotes.add
        store = self.server._merge_requests._comments._store

        def meanwhile(gitlab: FakeNotes, user: int, text: str, key: Any) -> int:
            theirs = add(gitlab, user, f"{MARK} theirs", key)
            self.pair.run(store.set("5-7", f"{theirs} {'0' * 64}".encode()))
            return add(gitlab, user, text, key)

        self.patch(FakeNotes, "add", meanwhile)
        self.tell(event(self.propose(*config_maps(1))))
        self.assertIn("1 prune", self.body())

    def test_a_store_that_is_away(self) -> None:
        """GitLab knows which comment is ours, too."""
        self.pair.store.down = True
        first = self.propose(*config_maps(1))
        self.tell(event(first))
        second = self.propose(*config_maps(1, 2))
        self.tell(event(second, action="update", oldrev=first))
        self.wait(merge_requests.PAUSE_FIRST)
        self.assertIn("2 unchanged", self.body())

    def test_one_that_a_user_changed(self) -> None:
        """The same preview again restores its text."""
        said = event(self.propose(*config_maps(1)))
        self.tell(said)
        self.gitlab.notes[5, 7][0]["body"] = f"{MARK} nothing changes"
        self.tell(said)
        self.assertIn("1 prune", self.body())

    def test_the_value_of_an_earlier_version(self) -> None:
        """The store has a digest behind the id: the comment is known."""
        first = self.propose(*config_maps(1))
        self.tell(event(first))
        store = self.server._merge_requests._comments._store
        number = self.gitlab.notes[5, 7][0]["id"]
        self.pair.run(store.set("5-7", f"{number} {'0' * 64}".encode()))
        self.gitlab.add(8, "y" * 999_999)
        self.gitlab.asked.clear()
        self.tell(event(self.propose(*config_maps(1, 2)), action="update"))
        self.wait(merge_requests.PAUSE_FIRST)
        self.assertEqual(self.gitlab.asked["POST"], 0)

    def test_the_same_again(self) -> None:
        """Nobody is told of a comment that says the same."""
        said = event(self.propose(*config_maps(1)))
        self.tell(said)
        self.tell(said)
        self.assertEqual(self.gitlab.asked["POST"], 1)
        self.assertEqual(self.gitlab.asked["PUT"], 0)

    def test_gitlab_is_away(self) -> None:
        """Asked again, with pauses; then the log says why."""
        said = event(self.propose(*config_maps(1)))
        for mood in ("503", "429"):
            self.gitlab.mood = mood
            self.tell(said)
            self.gitlab.mood = "ok"
            self.assertEqual(self.gitlab.asked.total(), 1)
            self.wait(3)
            self.assertIn("1 prune", self.body())
            self.gitlab.notes.clear()
            self.gitlab.asked.clear()
            said = event(self.propose(*config_maps(2)))
        self.gitlab.mood = "500"
        self.tell(said)
        self.wait(comments.PAUSE_MOST * comments.ATTEMPTS)
        self.assertEqual(self.gitlab.asked.total(), comments.ATTEMPTS)
        self.assertIn("GitLab: it responded with 500", self.logged())

    def test_a_token_that_is_refused(self) -> None:
        self.gitlab.tokens.clear()
        self.tell(event(self.propose(*config_maps(1))))
        self.assertIn(
            "could not write the preview of merge request 7 of project 5", self.logged()
        )
        self.assertIn("the token is not valid, or has expired (401)", self.logged())
        self.assertNotIn(TOKEN, self.logged())
        self.assertEqual(self.gitlab.asked["GET"], 1)

    def test_commands_and_blocks(self) -> None:
        """Nothing in a commit is a command, ends a block, or calls somebody."""
        new = object_("m001")
        new["data"] = {"n": "x\n/merge\n```\n/approve @all", "```": "y"}
        self.tell(event(self.propose(new, *config_maps(2))))
        lines = self.body().splitlines()
        self.assertEqual([one for one in lines if one.startswith("/")], [])
        fences = [one for one in lines if one.startswith("```")]
        self.assertEqual(len(fences), 2)
        self.assertGreater(len(fences[1]), 3)
        begin, end = (lines.index(one) for one in fences)
        outside = "\n".join(lines[:begin] + lines[end:])
        self.assertNotIn("@", outside)

    def test_problems(self) -> None:
        """Files that cannot be read, and a ref that is not there."""
        self.tell(event(self.apps.commit({"a.yaml": "kind: ["}, HEAD)))
        self.assertIn("nothing would be applied", self.body())
        self.assertRegex(self.body(), r"(?m)^! a.yaml:2:\d+: this is not YAML")
        self.tell(event("c" * 40, iid=8))
        self.wait(200)
        (body,) = self.bodies(8)
        self.assertIn("! ", body)

    def test_gitlab_is_ahead(self) -> None:
        """Its ref is at the commit a moment after the webhook."""
        old = self.propose(*config_maps(1))
        self.tell(event("c" * 40))
        self.assertEqual(self.bodies(), [])
        self.wait(merge_requests.PAUSE_MOST * merge_requests.ATTEMPTS)
        self.assertIn(f"(at `{old[:12]}`)", self.body())

    def test_many_events(self) -> None:
        """The newest of each is what counts, and so many wait."""
        commit = ""
        for number in range(1, merge_requests.ROUNDS + 4):
            commit = self.propose(*config_maps(number), *config_maps(50 + number))
            self.tell(event(commit))
            # kas does not look at a ref twice in a second.
            self.wait(merge_requests.PAUSE_FIRST)
        self.assertNotIn(commit[:12], self.body())
        self.assertEqual(
            self.gitlab.asked["POST"] + self.gitlab.asked["PUT"], merge_requests.ROUNDS
        )
        self.wait(merge_requests.ROUNDS_SECONDS)
        self.assertIn(commit[:12], self.body())

    def test_so_many_wait(self) -> None:
        """Of one project, and of all."""
        commit = self.propose(*config_maps(1))
        self.gitlab.mood = "503"
        each = merge_requests.MAX_WAITING_EACH
        for number in range(merge_requests.AT_ONCE_EACH + each):
            self.assertEqual(self.tell(event(commit, iid=100 + number)).status, 202)
        answer = self.tell(event(commit, iid=9999))
        self.assertEqual((answer.status, answer.fields["retry-after"]), (503, "60"))
        self.assertIn(
            f"{each} merge requests of this project are already waiting",
            str(answer.body),
        )
        # One that waits already is as welcome as those of other projects.
        self.assertEqual(self.tell(event(commit, iid=100 + each)).status, 202)
        self.assertEqual(self.tell(of_project(6, event(commit))).status, 202)
        self.patch(merge_requests, "MAX_WAITING", each)
        for number in range(merge_requests.AT_ONCE_EACH):
            self.tell(of_project(7, event(commit, iid=number + 1)))
        self.assertEqual(self.tell(of_project(7, event(commit))).status, 503)

    def test_turns(self) -> None:
        """A project whose merge requests take their time keeps no other one waiting."""
        page = self.server._merge_requests
        begun: list[tuple[int, int]] = []

        async def work(project_id: int, number: int) -> None:
            begun.append((project_id, number))
            await hangs[project_id, number]

        hangs: Any = defaultdict(Deferred)
        self.patch(page, "_work", work)
        self.patch(merge_requests, "AT_ONCE", 4)
        for number in range(1, 5):
            self.tell(of_project(1, event("c" * 40, iid=number)))
        self.assertEqual(begun, [(1, 1), (1, 2)])
        for project_id in (2, 3, 4):
            for number in (1, 2):
                self.tell(of_project(project_id, event("c" * 40, iid=number)))
        self.assertEqual(begun[2:], [(2, 1), (2, 2)])
        # One place is free again and again: it is each project's turn once.
        begun.clear()
        for one in ((1, 1), (1, 2), (2, 1), (2, 2)):
            hangs[one].callback(None)
        self.assertEqual(begun, [(1, 3), (3, 1), (4, 1), (1, 4)])

    def test_an_agent_whose_previews_hang(self) -> None:
        """Merge requests of its projects hold no comment about another agent."""
        api = self.server._api
        agents = [attrs.evolve(AGENT, agent_id=one, agent_name=one) for one in "ab"]
        self.patch(api.agents, "connected", lambda: agents)
        clients = {"a": Agent(self.clock, 3, 1e9), "b": Agent(self.clock, 0, 0)}
        self.patch(api.calls, "client", lambda service, agent_id: clients[agent_id])
        for number in range(8, 12):
            self.tell(event("c" * 40, iid=number))
        self.assertEqual(clients["a"].most, merge_requests.AGENT_AT_ONCE)
        clients["b"] = Agent(self.clock, 1, 0, "other")
        repositories = self.server._settings.repositories
        self.tell(of_project(6, event("c" * 40), repositories))
        self.assertIn("`b`, project `p0`", self.gitlab.notes[6, 7][0]["body"])
        self.assertEqual(self.bodies(8), [])
        self.wait(merge_requests.ALL_SECONDS + merge_requests.PREVIEW_SECONDS)
        self.assertEqual(clients["a"].most, merge_requests.AGENT_AT_ONCE)
        for number in (8, 9):
            self.assertIn("`a`, project `p0`", self.bodies(number)[0])

    def test_it_stops(self) -> None:
        self.gitlab.mood = "503"
        self.tell(event(self.propose(*config_maps(1))))
        page = self.server._merge_requests
        page.stop()
        self.assertEqual((page._working, page._waiting), ({}, {}))

    def logged(self) -> str:
        return "\n".join(self.said(""))


class SlowAgent:
    """
    Agent that makes one preview at a time, of the commit that GitLab's ref has now.

    :ivar seconds: the duration of a preview, by commit; others take a second.
    :ivar begun: the commits of all previews.
    :ivar ended: called at the end of each preview.
    """

    def __init__(self, case: MergeRequestCase, seconds: dict[str, float]) -> None:
        self._case, self._busy = case, False
        self.seconds = seconds
        self.begun: list[str] = []
        self.ended: Callable[[], None] = lambda: None

    async def call(self, method: str, request: Any, *, timeout: float) -> Any:
        if method == "GetStatus":
            one = pb.ProjectStatus(id="p0", repository="apps")
            return pb.GetStatusResponse(projects=[one])
        if self._busy:
            raise CallError(Status.RESOURCE_EXHAUSTED, "1 previews are running")
        self._busy = True
        try:
            commit = self._case.gitlab.merge_requests[5, 7]["sha"]
            self.begun.append(commit)
            await deferLater(self._case.clock, self.seconds.get(commit, 1))
            self.ended()
            return pb.PreviewResponse(commit=commit)
        finally:
            self._busy = False


class ChangedMeanwhileTests(MergeRequestCase):
    """A merge request that changes while it is previewed."""

    old, new = "a" * 40, "b" * 40

    def setUp(self) -> None:
        super().setUp()
        api = self.server._api
        self.slow = SlowAgent(self, {self.old: 50})
        self.patch(api.agents, "connected", lambda: [AGENT])
        self.patch(api.calls, "client", lambda service, agent_id: self.slow)
        self.one = self.server._merge_requests

    def another_kas(self) -> MergeRequests:
        """A second kas with the same store and the same agents."""
        one = self.one
        two = MergeRequests(one._api, one._settings, one._random, one._may_read)
        self.assertIs(two._comments._store, one._comments._store)
        self.addCleanup(two.stop)
        return two

    def assert_at(self, commit: str) -> None:
        self.assertIn(f"at commit `{commit[:12]}`", self.body())
        self.assertNotIn("running", self.body())

    def test_a_push_that_another_kas_hears_of(self) -> None:
        """The slow preview of the older commit does not replace the newer one."""
        two = self.another_kas()
        self.tell(event(self.old))
        self.wait(5)
        self.gitlab.know(event(self.new, action="update", oldrev=self.old))
        two._queue(5, 7)
        two._begin()
        self.wait(45)
        self.assertNotIn(self.old[:12], "".join(self.bodies()))
        self.wait(20)
        self.assert_at(self.new)

    def test_a_push_while_the_comment_is_written(self) -> None:
        """Another kas writes the newer comment first, and ours replaces it."""
        two = self.another_kas()
        put = Comments.put

        async def late(it: Any, project_id: int, number: int, text: str) -> None:
            if self.old[:12] in text:
                self.gitlab.know(event(self.new))
                two._queue(5, 7)
                two._begin()
                await deferLater(self.clock, 20)
                self.assert_at(self.new)
            await put(it, project_id, number, text)

        self.patch(Comments, "put", late)
        self.tell(event(self.old))
        self.wait(90)
        self.assertEqual(self.slow.begun, [self.old, self.new, self.new])
        self.assert_at(self.new)

    def test_two_first_comments(self) -> None:
        """Both kas create one before the store knows any: the newer text is left."""
        two = self.another_kas()
        remember = Comments._remember
        add = FakeNotes.add
        both: Deferred[None] = Deferred()
        looked: set[Comments] = set()

        def added(gitlab: FakeNotes, user: int, text: str, key: Any) -> int:
            number = add(gitlab, user, text, key)
            if self.old[:12] in text:
                self.gitlab.know(event(self.new))
                two._queue(5, 7)
                two._begin()
            else:
                self.clock.callLater(1, both.callback, None)
            return number

        async def late(it: Any, *given: Any) -> Any:
            if not both.called:
                await both
            return await remember(it, *given)

        self.patch(FakeNotes, "add", added)
        self.patch(Comments, "_remember", late)
        # The other kas looks for a comment before the first one is created.
        find = Comments.find

        async def nothing_first(it: Any, *key: Any) -> Any:
            if it in looked:
                return await find(it, *key)
            looked.add(it)
            return []

        self.patch(Comments, "find", nothing_first)
        self.tell(event(self.old))
        self.wait(90)
        self.assert_at(self.new)
        self.assertEqual(self.gitlab.asked["POST"], 2)

    def test_one_that_another_kas_deletes(self) -> None:
        """Both delete the same superfluous comment, and neither fails."""
        first, second = (self.gitlab.add(ME, f"{MARK} {n}") for n in range(2))
        change = Comments._change

        async def late(it: Any, *given: Any) -> bool:
            changed = await change(it, *given)
            self.gitlab.notes[5, 7].pop()
            return changed

        self.patch(Comments, "_change", late)
        self.tell(event(self.new))
        self.wait(5)
        self.assert_at(self.new)
        store = self.one._comments._store
        found = self.pair.run(store.get("5-7"))
        self.assertEqual(found.value, str(first).encode())
        self.assertGreater(second, first)

    def test_a_write_without_a_response(self) -> None:
        """GitLab has taken it: it is replaced if the merge request has changed."""
        put = Comments.put

        async def cut(it: Any, project_id: int, number: int, text: str) -> None:
            await put(it, project_id, number, text)
            if self.old[:12] in text:
                self.gitlab.know(event(self.new))
                raise CallError(Status.UNAVAILABLE, "GitLab: ConnectionLost")

        self.patch(Comments, "put", cut)
        self.tell(event(self.old))
        self.wait(60)
        self.assert_at(self.new)
        self.assertIn("ConnectionLost", "\n".join(self.said("")))

    def test_one_that_is_merged(self) -> None:
        """It gets no comment any more, and no other preview."""
        self.tell(event(self.old))
        self.wait(5)
        self.gitlab.merge_requests[5, 7]["state"] = "merged"
        self.wait(90)
        self.assertEqual(self.bodies(), [])
        self.assertEqual(self.slow.begun, [self.old])

    def test_another_target_branch(self) -> None:
        """The projects of the former one are in no comment."""
        self.tell(event(self.old))
        self.wait(5)
        self.gitlab.merge_requests[5, 7]["target_branch"] = "other"
        self.wait(90)
        self.assertEqual(self.bodies(), [])

    def test_an_endless_change(self) -> None:
        """It costs no more rounds than webhooks do, and one place in the queue."""
        commits = itertools.count(1)

        def push() -> None:
            self.gitlab.know(event(f"{next(commits):040x}"))

        self.slow.ended = push
        self.tell(event("f" * 40))
        self.wait(merge_requests.ROUNDS_SECONDS - 1)
        # An allowance of so many, which is renewed in that time.
        self.assertLess(len(self.slow.begun), 2 * merge_requests.ROUNDS)
        self.assertEqual(self.one._waiting, {5: {7: None}})
        self.assertEqual(self.bodies(), [])
        self.slow.ended = lambda: None
        self.wait(merge_requests.ROUNDS_SECONDS)
        self.assert_at(self.slow.begun[-1])
        self.assertEqual((self.one._waiting, self.one._working), ({}, {}))


class ForkTests(MergeRequestCase):
    """Where the operator takes them."""

    forks = True

    def test_a_fork(self) -> None:
        self.tell(event(self.propose(*config_maps(1)), source_project_id=6))
        self.assertIn("1 prune", self.body())


class TestText:
    """`modules.gitops.server.comment_text`."""

    def test_how_long(self) -> None:
        fields = [pb.FieldPreview(path="/data/x", before="a" * 900, after="b")] * 50
        one = pb.ObjectPreview(effect="change", fields=fields, more_fields=3)
        preview = pb.PreviewResponse(commit="c" * 40, objects=[one] * 500)
        asked = [Asked(f"agent-{n}", "apps", preview) for n in range(20)]
        found = comment("c" * 40, asked, left_out=4)
        assert len(found) < MAX_TEXT
        assert found.count("... and more") == 20
        assert "4 more projects follow this branch" in found

    def test_what_is_first(self) -> None:
        one = [
            pb.ObjectPreview(effect="create", object=pb.ObjectReference(name="a")),
            pb.ObjectPreview(effect="denied", reason="no\x1b[2J", place="x.yaml:1"),
        ]
        found = comment(
            "c" * 40, [Asked("`a`", "@all", pb.PreviewResponse(objects=one))]
        )
        assert "`?a?`, project `@all`: 1 denied, 1 create" in found
        assert found.index("! ") < found.index("+ ")
        assert "x.yaml:1: no?[2J" in found

    def test_an_effect_that_is_none(self) -> None:
        """A word of an agent's own is nowhere outside of blocks."""
        one = pb.ObjectPreview(effect="@all <img>")
        said = pb.PreviewResponse(commit="c" * 40, objects=[one])
        found = comment("c" * 40, [Asked("a", "b", said)])
        assert "project `b`: 1 unknown\n" in found


def test_a_way_that_others_can_read(tmp_path: Path) -> None:
    """No token and no key is sent there."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    with pytest.raises(ValueError, match="use https"):
        MergeRequestSettings(
            gitlab_url="http://gitlab.example.org",
            webhook_secret_file=secret,
            token_file=secret,
        )
    with pytest.raises(ValueError, match="write https://gitlab"):
        MergeRequestSettings(
            gitlab_url="gitlab.example.org",
            webhook_secret_file=secret,
            token_file=secret,
        )
    url = "http://gitlab.example.org/alerts/notify.json"
    with pytest.raises(ValueError, match="must be https"):
        WebhookSettings(url=url, format=WebhookFormat.GITLAB_ALERT, secret_file=secret)
    assert WebhookSettings(url=url, secret_file=secret).url == url
