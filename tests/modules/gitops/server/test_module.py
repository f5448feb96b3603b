"""The half in kas: an agent asks for the files of a source, and Git changes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer, provider
from zope.interface.verify import verifyObject

from modules.agent_configuration.agent import AgentConfigurationAgent
from modules.agent_configuration.server import AgentConfigurationServer
from modules.gitops.server import agent_refs, module
from modules.gitops.server.globs import MAX_LENGTH
from modules.gitops.server.module import (
    GITOPS,
    MAX_REF,
    MAX_REQUEST,
    PART,
    GitopsServer,
)
from modules.gitops.wire import rpc_pb2
from tunnel.api import (
    AgentMoved,
    AgentProject,
    Draining,
    GitAddress,
    GitalyAddress,
    GitPushed,
    IAgentModule,
    IAgentModuleFactory,
    IServerModule,
    RepositorySettings,
    TreeEntry,
    TreeEntryKind,
    followed_refs,
)
from tunnel.api.followed_refs import MIN_PAUSE, RETRY_FIRST
from tunnel.config import field
from tunnel.errors import CallError, Status
from tunnel.testing import ModulePair
from tunnel.testing.ends import AGENT

URL = "https://git.example.org/apps.git"
OTHER = "https://git.example.org/other.git"

AGENT_FILE = ".gitlab/agents/agent-1/config.yaml"
OF_LEVEL = "observability: {{logging: {{level: {}}}}}\n"

_Request = rpc_pb2.ObjectsToSynchronizeRequest


@attrs.frozen
class _Nothing:
    pass


@attrs.frozen
class _Logging:
    level: str = ""


@attrs.frozen
class _Observability:
    logging: _Logging = field(factory=_Logging, doc="logs")


@provider(IAgentModuleFactory)
@implementer(IAgentModule)
class Asker:
    """An agent half that only asks."""

    configuration = _Nothing

    def __init__(self, api: Any) -> None:
        self.name, self.api = api.name, api

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


class Reading:
    """One stream, as far as it has come."""

    def __init__(self, asker: Asker, request: Any) -> None:
        self.parts: list[Any] = []
        self.ended = False
        self.error: CallError | None = None
        self._reading = Deferred.fromCoroutine(self._read(asker, request))
        self._reading.addErrback(self._failed)

    def leave(self) -> None:
        self._reading.cancel()

    async def _read(self, asker: Asker, request: Any) -> None:
        stream = asker.api.calls.client(GITOPS).stream(
            "GetObjectsToSynchronize", request
        )
        async for part in stream:
            self.parts.append(part)
        self.ended = True

    def _failed(self, failure: Failure) -> None:
        if isinstance(failure.value, CallError):
            self.error = failure.value

    @property
    def commit(self) -> str:
        found: str = self.parts[0].header.commit_id
        return found

    @property
    def files(self) -> dict[str, bytes]:
        """What came, after it was seen that it is complete."""
        header, *objects, trailer = self.parts
        assert header.WhichOneof("message") == "header"
        found: dict[str, bytes] = {}
        for one in objects:
            found[one.object.source] = (
                found.get(one.object.source, b"") + one.object.data
            )
        total = hashlib.sha256()
        for path, data in found.items():
            for part in (path.encode(), data):
                total.update(len(part).to_bytes(8, "big") + part)
        assert trailer.trailer.files == len(found)
        assert trailer.trailer.sha256 == total.digest()
        assert self.ended
        return found


class ServerTests(SynchronousTestCase):
    """One agent, and repositories that it may or may not read."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.pair = ModulePair(self.clock, random=lambda: 1.0)
        self.repository = self.pair.repositories.open(GitAddress(url=URL))
        self.begin()

    def begin(self, **settings: Any) -> None:
        settings.setdefault("repositories", {"apps": RepositorySettings(url=URL)})
        self.server = self.pair.server_half(GitopsServer, **settings)
        self.asker = self.pair.agent_half(Asker)
        self.pair.start()
        self.addCleanup(self.pair.stop)

    def again(self, **settings: Any) -> None:
        """With other settings."""
        self.pair.stop()
        self.pair = ModulePair(self.clock, random=lambda: 1.0)
        self.repository = self.pair.repositories.open(GitAddress(url=URL))
        self.begin(**settings)

    def ask(
        self, *globs: str, commit: str = "", project: str = "", **ref: str
    ) -> Reading:
        paths = [rpc_pb2.Path(glob=one) for one in globs or ("**/*.yaml",)]
        request = _Request(
            project_id=project,
            commit_id=commit,
            paths=paths,
            ref=rpc_pb2.Ref(**ref) if ref else None,
        )
        reading = Reading(self.asker, request)
        self.pair.settle()
        self.passes(0)
        return reading

    def passes(self, seconds: float) -> None:
        """In steps, so that the tunnel is not taken for dead."""
        for _ in range(int(seconds // 10)):
            self.clock.advance(10)
            self.pair.settle()
        self.clock.advance(seconds % 10)
        self.pair.settle()

    def refused(self, reading: Reading) -> tuple[Status, str]:
        assert reading.error is not None
        return reading.error.status, reading.error.message

    def test_interfaces(self) -> None:
        verifyObject(IServerModule, self.server)

    def test_all_files_at_once(self) -> None:
        commit = self.repository.commit(
            {"b.yaml": "b: 1\n", "x/a.yaml": "", "x/readme.md": "no", ".x/c.yaml": "no"}
        )
        reading = self.ask()
        self.assertEqual(reading.files, {"b.yaml": b"b: 1\n", "x/a.yaml": b""})
        self.assertEqual(reading.commit, commit)
        self.assertEqual(reading.parts[0].header.project_path, "apps")

    def test_the_ref_has_one_name(self) -> None:
        """An answer names the ref whole, and the repository by its address."""
        self.repository.commit({"a.yaml": "1"})
        readings = [
            Reading(self.asker, _Request(only_commit=True, ref=ref))
            for ref in (None, rpc_pb2.Ref(branch="main"))
        ]
        self.passes(MIN_PAUSE)
        found = [one.parts[0].header for one in readings]
        self.assertEqual({one.ref for one in found}, {"refs/heads/main"})
        self.assertEqual(len({one.repository for one in found}), 1)
        self.assertRegex(found[0].repository, "^url:[0-9a-f]{32}$")
        # At once, and without a commit, while the repository cannot be read.
        self.repository.down = CallError(Status.UNAVAILABLE, "away")
        asked = Reading(self.asker, _Request(only_commit=True, only_repository=True))
        self.pair.settle()
        (part,) = asked.parts
        self.assertEqual(part.header.repository, found[0].repository)
        self.assertEqual((part.header.ref, part.header.commit_id), ("", ""))

    def test_folders_that_begin_with_a_dot(self) -> None:
        """Of sources that are rendered; charts and kustomizations have files there."""
        self.repository.commit({"a.yaml": "1", ".x/b.yaml": "2"})
        paths = [rpc_pb2.Path(glob="**/*.yaml")]
        reading = Reading(self.asker, _Request(paths=paths, hidden_folders=True))
        self.pair.settle()
        self.passes(0)
        self.assertEqual(reading.files, {".x/b.yaml": b"2", "a.yaml": b"1"})

    def test_large_files_come_in_parts(self) -> None:
        data = bytes(range(256)) * (PART // 100)
        self.repository.commit({"a.yaml": data, "b.yaml": b"b"})
        reading = self.ask()
        self.assertEqual(reading.files, {"a.yaml": data, "b.yaml": b"b"})
        sizes = {len(one.object.data) for one in reading.parts[1:-1]}
        self.assertEqual(max(sizes), PART)

    def test_silent_until_the_branch_is_at_another_commit(self) -> None:
        first = self.repository.commit({"a.yaml": "1"})
        reading = self.ask(commit=first)
        self.passes(290)
        self.assertEqual((reading.parts, self.repository.resolved), ([], 1))
        second = self.repository.commit({"a.yaml": "2"})
        self.passes(10)
        self.assertEqual(reading.commit, second)
        self.assertEqual(reading.files, {"a.yaml": b"2"})

    def test_pushed(self) -> None:
        first = self.repository.commit({"a.yaml": "1"})
        reading = self.ask(commit=first)
        second = self.repository.commit({"a.yaml": "2"})
        self.server._api.events.publish(GitPushed("another"))
        self.passes(MIN_PAUSE)
        self.assertEqual(reading.parts, [])
        self.server._api.events.publish(GitPushed("apps"))
        self.passes(MIN_PAUSE)
        self.assertEqual(reading.commit, second)

    def test_pushed_while_nobody_waits(self) -> None:
        """What was seen before is not given out after that."""
        first = self.repository.commit({"a.yaml": "1"})
        self.assertEqual(self.ask().commit, first)
        second = self.repository.commit({"a.yaml": "2"})
        self.server._api.events.publish(GitPushed("apps"))
        reading = self.ask()
        self.passes(MIN_PAUSE)
        self.assertEqual(reading.commit, second)

    def test_never_an_older_commit(self) -> None:
        """This kas saw the branch a while ago; agentk has a newer one from another."""
        first = self.repository.commit({"a.yaml": "1"})
        self.assertEqual(self.ask().commit, first)
        second = self.repository.commit({"a.yaml": "2"})
        self.passes(20)
        reading = self.ask(commit=second)
        self.passes(200)
        self.assertEqual(reading.parts, [])
        self.assertEqual(self.ask().commit, second)

    def test_many_cost_one_look(self) -> None:
        first = self.repository.commit({"a.yaml": "1"})
        readings = [self.ask(commit=first) for _ in range(20)]
        self.assertEqual(self.repository.resolved, 1)
        for _ in range(50):
            self.server._api.events.publish(GitPushed("apps"))
        self.passes(MIN_PAUSE)
        self.assertEqual(self.repository.resolved, 2)
        self.repository.commit({"a.yaml": "2"})
        self.passes(300)
        self.assertEqual(self.repository.resolved, 3)
        self.assertEqual([one.files for one in readings], [{"a.yaml": b"2"}] * 20)
        self.assertEqual(self.ask().files, {"a.yaml": b"2"})
        self.assertEqual(self.repository.resolved, 3)

    def with_configuration(self) -> list[str]:
        """The agent's file is in the same repository; what it says, one by one."""
        levels: list[str] = []
        self.pair.stop()
        self.pair = ModulePair(self.clock, random=lambda: 1.0)
        self.repository = self.pair.repositories.open(GitAddress(url=URL))
        self.repository.commit({AGENT_FILE: OF_LEVEL.format("warn"), "a.yaml": "1"})
        settings = {"clusters": RepositorySettings(url=URL)}
        self.pair.server_half(AgentConfigurationServer, repositories=settings)
        self.pair.agent_half(AgentConfigurationAgent)
        self.pair.sections.follow(
            "test",
            "observability",
            _Observability,
            lambda one: levels.append(one.logging.level),
        )
        self.begin()
        self.passes(1)
        self.assertEqual(levels, ["warn"])
        return levels

    def test_files_wait_for_the_agents_file(self) -> None:
        """What a commit says of itself holds before its files are applied."""
        levels = self.with_configuration()
        first = self.ask().commit
        reading = self.ask(commit=first)
        files = {AGENT_FILE: OF_LEVEL.format("error"), "a.yaml": "2"}
        second = self.repository.commit(files)
        # Only who sends files is told of the push.
        self.server._api.events.publish(GitPushed("apps"))
        for _ in range(30):
            self.assertFalse(reading.parts and levels == ["warn"])
            self.passes(0.1)
        self.assertEqual((reading.commit, levels), (second, ["warn", "error"]))

    def test_files_are_not_older_than_the_agents_file(self) -> None:
        levels = self.with_configuration()
        self.ask()
        files = {AGENT_FILE: OF_LEVEL.format("error"), "a.yaml": "2"}
        second = self.repository.commit(files)
        self.server._api.events.publish(GitPushed("clusters"))
        self.passes(0.5)
        self.assertEqual(levels, ["warn", "error"])
        reading = self.ask()
        self.passes(MIN_PAUSE)
        self.assertEqual(reading.commit, second)

    def test_the_agents_file_is_on_another_branch(self) -> None:
        levels = self.with_configuration()
        files = {AGENT_FILE: OF_LEVEL.format("error"), "a.yaml": "next"}
        commit = self.repository.commit(files, "refs/heads/next")
        reading = self.ask(branch="next")
        self.assertEqual((reading.commit, levels), (commit, ["warn"]))

    def test_refs(self) -> None:
        main = self.repository.commit({"a.yaml": "main"})
        self.repository.commit({"a.yaml": "branch"}, "refs/heads/next")
        self.repository.commit({"a.yaml": "tag"}, "refs/tags/v1")
        self.repository.commit({"a.yaml": "last"})
        found = [
            self.ask(branch="next"),
            self.ask(tag="v1"),
            self.ask(commit=main),
            self.ask(),
        ]
        self.assertEqual(
            [one.files["a.yaml"] for one in found],
            [b"branch", b"tag", b"last", b"last"],
        )

    def test_one_commit(self) -> None:
        first = self.repository.commit({"a.yaml": "1"})
        self.repository.commit({"a.yaml": "2"})
        request = _Request(
            paths=[rpc_pb2.Path(file="a.yaml")], ref=rpc_pb2.Ref(commit=first)
        )
        reading = Reading(self.asker, request)
        self.pair.settle()
        self.passes(0)
        self.assertEqual(reading.files, {"a.yaml": b"1"})
        request.commit_id = first
        again = Reading(self.asker, request)
        self.pair.settle()
        self.passes(0)
        self.assertEqual(
            self.refused(again), (Status.FAILED_PRECONDITION, "agentk has that commit")
        )

    def of_history(self, commit: str, **ref: str) -> Reading:
        request = _Request(
            paths=[rpc_pb2.Path(file="a.yaml")],
            ref=rpc_pb2.Ref(commit=commit),
            history_of=rpc_pb2.Ref(**ref),
        )
        reading = Reading(self.asker, request)
        self.pair.settle()
        self.passes(0)
        return reading

    def test_a_commit_of_a_history(self) -> None:
        """agentk gets a pinned commit only if the ref that it follows contains it."""
        first = self.repository.commit({"a.yaml": "1"})
        self.repository.commit({"a.yaml": "2"})
        other = self.repository.commit({"a.yaml": "3"}, "refs/heads/other")
        self.assertEqual(self.of_history(first).files, {"a.yaml": b"1"})
        self.assertEqual(self.of_history(other, branch="other").commit, other)
        for commit, ref, name in (
            (other, {}, "HEAD"),
            (first, {"branch": "other"}, "refs/heads/other"),
            ("0" * 40, {}, "HEAD"),
        ):
            self.assertEqual(
                self.refused(self.of_history(commit, **ref)),
                (
                    Status.FAILED_PRECONDITION,
                    f"commit {commit[:12]} is not in the history of {name}",
                ),
            )

    def test_a_commit_that_is_a_ref(self) -> None:
        """It would move, and is neither pinned nor previewed."""
        self.repository.commit({"a.yaml": "1"}, "refs/heads/next")
        for name in ("refs/heads/next", "next", "HEAD", "ab"):
            status, why = self.refused(self.of_history(name))
            self.assertIs(status, Status.INVALID_ARGUMENT, why)

    def test_names_that_are_too_long(self) -> None:
        """kas keeps no name of a ref that it refuses."""
        long = "x" * (MAX_REF + 1)
        for ref in (
            rpc_pb2.Ref(branch=long),
            rpc_pb2.Ref(tag=long),
            rpc_pb2.Ref(commit=long),
            rpc_pb2.Ref(name=f"refs/heads/{long}"),
        ):
            paths = [rpc_pb2.Path(glob="*")]
            pinned = rpc_pb2.Ref(commit="a" * 40)
            for request in (
                _Request(paths=paths, ref=ref),
                _Request(paths=paths, ref=pinned, history_of=ref),
            ):
                reading = Reading(self.asker, request)
                self.pair.settle()
                status, why = self.refused(reading)
                self.assertIs(status, Status.INVALID_ARGUMENT, why)
                self.assertNotIn("xxx", why)
        self.assertEqual(len(self.server._refs), 0)

    def test_requests_that_are_too_large(self) -> None:
        """They would stay in memory for as long as a stream waits."""
        for large in (
            _Request(paths=[rpc_pb2.Path(glob="x" * MAX_REQUEST)]),
            _Request(commit_id="x" * MAX_REQUEST),
            _Request(project_id="x" * MAX_REQUEST, only_commit=True),
        ):
            reading = Reading(self.asker, large)
            self.pair.settle()
            status, why = self.refused(reading)
            self.assertEqual(
                (status, why),
                (
                    Status.INVALID_ARGUMENT,
                    f"a request for a source may have at most {MAX_REQUEST} bytes",
                ),
            )

    def test_a_file_whose_path_is_too_long(self) -> None:
        """The refusal repeats the beginning of the path."""
        for path in (
            rpc_pb2.Path(file="*" * 20_000),
            rpc_pb2.Path(glob="*" * 20_000),
        ):
            reading = Reading(self.asker, _Request(paths=[path]))
            self.passes(20)
            status, why = self.refused(reading)
            self.assertIs(status, Status.FAILED_PRECONDITION)
            self.assertEqual(
                why, f"'{'*' * 200}': a glob may have at most {MAX_LENGTH} characters"
            )

    def test_files_by_name(self) -> None:
        self.repository.commit({"a*.yaml": "star", "ab.yaml": "other"})
        request = _Request(paths=[rpc_pb2.Path(file="/a*.yaml")])
        reading = Reading(self.asker, request)
        self.pair.settle()
        self.passes(0)
        self.assertEqual(reading.files, {"a*.yaml": b"star"})

    def test_a_file_that_two_globs_match_comes_once(self) -> None:
        self.repository.commit({"x/a.yaml": "1", "y/b.yaml": "2", "z/c.yaml": "3"})
        reading = self.ask("x/*.yaml", "**/a.yaml", "y/**")
        self.assertEqual(reading.files, {"x/a.yaml": b"1", "y/b.yaml": b"2"})

    def test_nothing_matches(self) -> None:
        """All is well as far as Git is concerned; agentk says what that means."""
        self.repository.commit({"a.txt": "1"})
        self.assertEqual(self.ask().files, {})

    # What cannot be sent.

    def test_a_repository_that_cannot_be_read(self) -> None:
        self.repository.commit({"a.yaml": "1"})
        self.repository.down = CallError(Status.UNAVAILABLE, "no route")
        status, why = self.refused(self.ask())
        self.assertEqual(status, Status.UNAVAILABLE)
        self.assertEqual(why, "repository apps: no route")
        # Agents that ask again at once do not make kas ask again at once.
        waiting = [self.ask() for _ in range(5)]
        self.assertEqual(self.repository.resolved, 1)
        self.repository.down = None
        self.passes(RETRY_FIRST)
        self.assertEqual(self.repository.resolved, 2)
        self.assertEqual([one.files for one in waiting], [{"a.yaml": b"1"}] * 5)

    def test_a_ref_that_is_gone(self) -> None:
        commit = self.repository.commit({"a.yaml": "1"}, "refs/heads/x")
        reading = self.ask(commit=commit, branch="x")
        self.repository.remove("refs/heads/x")
        self.passes(300)
        self.assertEqual(self.refused(reading)[0], Status.NOT_FOUND)
        self.assertEqual(reading.parts, [])

    def test_a_folder_that_is_not_there(self) -> None:
        """Never the same as a folder without files."""
        self.repository.commit({"a.yaml": "1"})
        status, why = self.refused(self.ask("prod/*.yaml"))
        # Not as anything else that is wrong with a commit.
        self.assertEqual(status, Status.NOT_FOUND)
        self.assertIn("has no folder prod", why)

    def test_a_folder_that_the_git_server_denies(self) -> None:
        """It is not absent if the whole commit has files below it."""
        self.repository.commit({"prod/a.yaml": "1"})
        whole = self.repository.tree

        async def denied(commit: str, path: str = "", **more: Any) -> list[TreeEntry]:
            if path:
                raise CallError(Status.NOT_FOUND, "no such folder")
            return await whole(commit, path, **more)

        self.patch(self.repository, "tree", denied)
        status, why = self.refused(self.ask("prod/*.yaml"))
        self.assertEqual(status, Status.UNAVAILABLE)
        self.assertIn("has files below prod", why)
        # The commit agrees that this folder is absent.
        self.assertEqual(self.refused(self.ask("none/*.yaml"))[0], Status.NOT_FOUND)

    def test_names_that_are_not_text(self) -> None:
        """Two that look the same, and one that the Git server does not find."""
        name = "a\N{REPLACEMENT CHARACTER}.yaml"
        self.repository.commit({name: "1"})
        self.assertEqual(self.ask("*.yaml").files, {name: b"1"})
        whole = self.repository.tree

        async def twice(*given: Any, **more: Any) -> list[TreeEntry]:
            return [*await whole(*given, **more)] * 2

        self.patch(self.repository, "tree", twice)
        expected = Status.FAILED_PRECONDITION
        status, why = self.refused(self.ask("*.yaml"))
        self.assertEqual(status, expected)
        self.assertIn(f"the name of the file {name} is not UTF-8", why)

        async def read_files(*given: Any, **more: Any) -> list[bytes]:
            raise CallError(Status.NOT_FOUND, f"there is no {name!r}")

        self.patch(self.repository, "tree", whole)
        self.patch(self.repository, "read_files", read_files)
        status, why = self.refused(self.ask("*.yaml"))
        self.assertEqual(status, expected)
        self.assertIn("rename it, or leave it out of the globs", why)

    def test_a_file_that_is_missing(self) -> None:
        """A damaged repository does not look like a commit without a folder."""
        self.repository.commit({"apps/a.yaml": "1"})

        async def read_files(*given: Any, **more: Any) -> list[bytes]:
            raise CallError(Status.NOT_FOUND, "'apps/a.yaml' is missing")

        self.patch(self.repository, "read_files", read_files)
        status, why = self.refused(self.ask("apps/*.yaml"))
        self.assertEqual(
            (status, why), (Status.UNAVAILABLE, "'apps/a.yaml' is missing")
        )

    def test_links(self) -> None:
        """They are followed inside of the repository, and refused otherwise."""
        self.repository.commit({"apps/a.yaml": "1", "base/b.yaml": "2"})
        whole = self.repository.tree
        link = TreeEntry("apps/l.yaml", TreeEntryKind.LINK, "1")

        async def tree(*given: Any, **more: Any) -> list[TreeEntry]:
            return [*await whole(*given, **more), link]

        async def target(commit: str, path: str) -> str:
            assert path == "apps/l.yaml"
            return targets[-1]

        targets = ["../base/b.yaml"]
        self.patch(self.repository, "tree", tree)
        self.patch(self.repository, "link", target)
        reading = self.ask("apps/*.yaml")
        self.assertEqual(reading.files, {"apps/a.yaml": b"1", "apps/l.yaml": b"2"})
        targets.append("/etc/passwd")
        self.assertIn(
            "apps/l.yaml is a symbolic link that leads out of the repository",
            self.refused(self.ask("apps/*.yaml"))[1],
        )

    def test_globs_below_a_link(self) -> None:
        """A link to a folder counts as the folder, and nothing is left out unsaid."""
        self.repository.commit({"base/in/b.yaml": "2", "a/a.yaml": "1"})
        whole = self.repository.tree
        kinds = {"link": TreeEntryKind.LINK, "sub": TreeEntryKind.SUBMODULE}

        async def tree(
            commit: str,
            path: str = "",
            *,
            recursive: bool = False,
            most: int | None = None,
        ) -> list[TreeEntry]:
            found = await whole(commit, path, recursive=recursive, most=most)
            more = [TreeEntry(one, kind, "1") for one, kind in kinds.items()]
            return found if path else [*found, *more]

        async def target(commit: str, path: str) -> str:
            return targets[-1]

        targets = ["base"]
        self.patch(self.repository, "tree", tree)
        self.patch(self.repository, "link", target)
        for globs in (
            ["link/**/*.yaml"],
            ["link/in/*.yaml"],
            ["link/in/b.yaml"],
            ["l*/*/b.yaml"],
            ["link/**/*.yaml", "a/none"],
        ):
            self.assertEqual(self.ask(*globs).files, {"link/in/b.yaml": b"2"}, globs)
        for target_, glob, status, why in (
            ("base", "link/none/*", Status.NOT_FOUND, "has none of the files below"),
            ("a/a.yaml", "link/*", Status.NOT_FOUND, "has none of the files below"),
            ("../x", "link/*", Status.FAILED_PRECONDITION, "leads out of the repo"),
            ("none", "l*/*", Status.FAILED_PRECONDITION, "leads to nothing"),
            ("base", "sub/*", Status.FAILED_PRECONDITION, "sub is a submodule"),
            ("base", "a/a.yaml/*", Status.NOT_FOUND, "has no folder a/a.yaml"),
        ):
            targets.append(target_)
            refused = self.refused(self.ask(glob))
            self.assertEqual(refused[0], status, glob)
            self.assertIn(why, refused[1])

    def test_submodules_are_not_followed(self) -> None:
        self.repository.commit({"a.yaml": "1"})
        for kind, name in ((TreeEntryKind.SUBMODULE, "submodule"),):

            async def tree(
                *given: Any, kind: TreeEntryKind = kind, **more: Any
            ) -> list[TreeEntry]:
                return [TreeEntry("a.yaml", kind, "1")]

            self.patch(self.repository, "tree", tree)
            reading = self.ask()
            self.assertIn(f"a.yaml is a {name}", self.refused(reading)[1])
            self.assertEqual(len(reading.parts), 1)

    def test_names_that_are_made_to_be_slow(self) -> None:
        """Long paths and long globs: one compares each character with each."""
        self.repository.commit({f"a/{n}" + "x" * 4000: "" for n in range(200)})
        globs = [f"/a/{n}*" + "?" * 900 + "z" for n in range(10)]
        reading = self.ask(*globs)
        # kas looks at the paths in turns.
        self.assertIsNone(reading.error)
        for _ in range(200):
            self.passes(0.1)
        status, why = self.refused(reading)
        self.assertIs(status, Status.FAILED_PRECONDITION)
        self.assertIn("write fewer or shorter globs", why)
        # It is still known.
        self.patch(self.repository, "tree", None)
        reading = self.ask(*globs)
        for _ in range(20):
            self.passes(0.1)
        self.assertEqual(self.refused(reading), (status, why))

    def test_limits_of_files(self) -> None:
        self.again(
            max_manifest_file_size=10,
            max_total_manifest_file_size=15,
            max_number_of_files=3,
        )
        self.repository.commit({"a.yaml": "1" * 11})
        self.assertEqual(
            self.refused(self.ask()),
            (Status.FAILED_PRECONDITION, "a.yaml has more than 10 bytes"),
        )
        self.repository.commit({"a.yaml": "1" * 10, "b.yaml": "2" * 6})
        self.server._api.events.publish(GitPushed("apps"))
        reading = self.ask()
        self.passes(MIN_PAUSE)
        self.assertEqual(
            self.refused(reading)[1], "all files together have more than 15 bytes"
        )
        self.assertFalse(any(one.HasField("trailer") for one in reading.parts))
        self.repository.commit({f"{n}.txt": "" for n in range(4)})
        self.server._api.events.publish(GitPushed("apps"))
        reading = self.ask()
        self.passes(MIN_PAUSE)
        self.assertIn(
            "has more than 3 files (max_number_of_files)", self.refused(reading)[1]
        )

    def test_paths(self) -> None:
        self.again(max_number_of_paths=2)
        self.assertEqual(
            self.refused(self.ask("a", "b", "c"))[0], Status.INVALID_ARGUMENT
        )
        status, why = self.refused(self.ask("a", "{b"))
        self.assertEqual(status, Status.FAILED_PRECONDITION)
        self.assertEqual(why, "'{b': a { of the glob has no }")
        reading = Reading(self.asker, _Request())
        self.pair.settle()
        self.assertEqual(self.refused(reading)[0], Status.INVALID_ARGUMENT)

    # Who may read what.

    def test_only_what_the_operator_lets_it(self) -> None:
        self.again(
            repositories={
                "secret": RepositorySettings(url=OTHER, agents=("agent-2",)),
                "apps": RepositorySettings(url=URL, agents=("agent-*",)),
            }
        )
        self.repository.commit({"a.yaml": "1"})
        self.assertEqual(self.ask(project="apps").files, {"a.yaml": b"1"})
        self.assertEqual(self.ask().files, {"a.yaml": b"1"})
        refusals = [self.refused(self.ask(project=one)) for one in ("secret", "none")]
        self.assertEqual({one[0] for one in refusals}, {Status.FAILED_PRECONDITION})
        secret, none = (one[1] for one in refusals)
        self.assertEqual(secret.replace("secret", "none"), none)
        self.assertIn("agent.gitops.repositories", none)
        self.assertTrue(none.endswith("; it may read: apps"), none)

    def test_an_agent_of_gitlab(self) -> None:
        """It reads its own project, and no other one by that name."""
        self.again(repositories={"apps": RepositorySettings(url=URL)})
        address = GitalyAddress(address="tcp://gitaly:1")
        self.server._api.gitlab.projects["1"] = AgentProject(
            full_path="group/own", default_branch="main", repository=address
        )
        own = self.pair.repositories.open(address)
        own.commit({"a.yaml": "own"})
        self.assertEqual(self.ask().files, {"a.yaml": b"own"})
        reading = self.ask(project="group/own")
        self.assertEqual(reading.files, {"a.yaml": b"own"})
        self.assertEqual(reading.parts[0].header.project_path, "group/own")
        for project in ("apps", "group/other"):
            status, said = self.refused(self.ask(project=project))
            self.assertEqual(status, Status.FAILED_PRECONDITION)
            self.assertTrue(said.endswith("; it may read: group/own"), said)

    def test_a_project_that_moves(self) -> None:
        """agentk is told to ask again, and gets what is at the new place."""
        readings: list[Reading] = []
        commits: list[str] = []
        repository = self.repository
        for place in "12":
            address = GitalyAddress(address=f"tcp://gitaly:{place}")
            self.server._api.gitlab.projects["1"] = AgentProject(
                full_path="group/own", default_branch="main", repository=address
            )
            self.server._api.events.publish(AgentMoved("1"))
            self.pair.settle()
            repository = self.pair.repositories.open(address)
            commits.append(repository.commit({"a.yaml": place}))
            readings.append(self.ask(commit=commits[-1], project="group/own"))
            self.passes(MIN_PAUSE)
        self.assertEqual((readings[0].ended, readings[0].parts), (True, []))
        # It asked for another commit than the one that it has.
        self.assertFalse(readings[1].ended)
        repository.commit({"a.yaml": "new"})
        self.passes(300)
        self.assertEqual(readings[1].files, {"a.yaml": b"new"})
        self.assertEqual(self.server._waiting, {})

    # Bounds, and the end.

    def test_a_crowd_of_one_agent(self) -> None:
        """Its streams wait for each other, and another agent for none of them."""
        hanging: list[Deferred[list[bytes]]] = []
        read = self.repository.read_files

        async def slow(*given: Any, **more: Any) -> list[bytes]:
            hanging.append(Deferred())
            return await hanging[-1]

        for number in range(20):
            self.repository.commit({"a.yaml": f"{number}"}, f"refs/heads/b{number}")
        self.patch(self.repository, "read_files", slow)
        crowd = [self.ask(branch=f"b{number}") for number in range(20)]
        self.passes(20)
        self.assertEqual(len(hanging), module.READINGS)
        self.patch(self.repository, "read_files", read)
        parts: list[Any] = []

        async def other() -> None:
            agent = attrs.evolve(AGENT, agent_id="2", instance_id=b"other")
            request = _Request(paths=[rpc_pb2.Path(glob="*")])
            request.ref.branch = "b0"
            call = SimpleNamespace(agent=agent)
            async for one in self.server.get_objects_to_synchronize(request, call):
                parts.append(one)

        asking = Deferred.fromCoroutine(other())
        self.passes(MIN_PAUSE)
        self.successResultOf(asking)
        self.assertEqual(parts[1].object.data, b"0")
        for one in hanging:
            one.callback([b"late"])
        self.passes(20)
        self.assertTrue(all(one.ended for one in crowd))
        self.assertEqual(len(self.server._slots), 0)

    def test_forced_reads_of_one_agent(self) -> None:
        """They need slots, even if other streams follow their refs."""
        branches = [f"b{number}" for number in range(20)]
        for number, branch in enumerate(branches):
            files = {"a.yaml": f"{number}"}
            commit = self.repository.commit(files, f"refs/heads/{branch}")
            # This stream waits for the next commit.
            self.ask(branch=branch, commit=commit)
        self.passes(20)
        hanging: list[Deferred[str]] = []

        async def slow(ref: str = "HEAD") -> str:
            hanging.append(Deferred())
            return await hanging[-1]

        self.patch(self.repository, "resolve", slow)
        for branch in branches:
            request = _Request(
                only_commit=True,
                paths=[rpc_pb2.Path(glob="*")],
                ref=rpc_pb2.Ref(branch=branch),
            )
            Reading(self.asker, request)
        self.passes(20)
        self.assertEqual(len(hanging), module.READINGS)

    def test_histories_of_one_agent(self) -> None:
        """One at a time: each may fetch a repository as a whole."""
        hanging: list[Deferred[bool]] = []

        async def slow(ref: str, commit: str) -> bool:
            hanging.append(Deferred())
            return await hanging[-1]

        self.patch(self.repository, "contains", slow)
        first = self.repository.commit({"a.yaml": "1"})
        crowd = [self.of_history(first) for _ in range(3)]
        for number, one in enumerate(crowd, 1):
            self.assertEqual(len(hanging), number)
            hanging[-1].callback(True)
            self.passes(0)
            self.assertEqual(one.files, {"a.yaml": b"1"})
        self.assertEqual(len(self.server._histories), 0)

    def test_streams_of_one_agentk(self) -> None:
        self.patch(module, "MAX_STREAMS", 2)
        commit = self.repository.commit({"a.yaml": "1"})
        first, second = self.ask(commit=commit), self.ask(commit=commit)
        self.assertEqual(
            self.refused(self.ask(commit=commit))[0], Status.RESOURCE_EXHAUSTED
        )
        first.leave()
        self.pair.settle()
        third = self.ask(commit=commit)
        self.assertIsNone(third.error)
        second.leave()
        third.leave()
        self.pair.settle()
        self.assertEqual((self.server._streams, self.server._waiting), ({}, {}))
        resolved = self.repository.resolved
        self.passes(600)
        self.assertEqual(self.repository.resolved, resolved)

    def test_refs_of_one_agent(self) -> None:
        self.patch(agent_refs, "MAX_REFS", 2)
        commits = [
            self.repository.commit({"a.yaml": "1"}, f"refs/heads/{name}")
            for name in "abc"
        ]
        first = self.ask(commit=commits[0], branch="a")
        second = self.ask(commit=commits[1], branch="b")
        for again in (self.ask(branch="a"), self.ask(branch="b")):
            self.passes(MIN_PAUSE)
            self.assertEqual(again.files, {"a.yaml": b"1"})
        self.assertEqual(
            self.refused(self.ask(branch="c"))[0], Status.RESOURCE_EXHAUSTED
        )
        first.leave()
        self.pair.settle()
        self.assertEqual(self.ask(branch="c").commit, commits[2])
        second.leave()
        self.pair.settle()
        self.assertEqual(len(self.server._of_agents), 0)

    def test_refs_that_are_remembered(self) -> None:
        self.patch(followed_refs, "MAX_IDLE", 3)
        for number in range(10):
            self.repository.commit({"a.yaml": "1"}, f"refs/heads/{number}")
            self.ask(branch=str(number))
        self.assertEqual(len(self.server._refs), 4)

    def test_drain(self) -> None:
        """Agents ask another kas; who is sent files gets them all."""
        commit = self.repository.commit({"a.yaml": "1"})
        reading = self.ask(commit=commit)
        self.server._api.events.publish(Draining())
        self.pair.settle()
        self.assertEqual((reading.ended, reading.parts), (True, []))
        late = self.ask()
        self.assertTrue(late.ended)
        self.assertEqual(late.parts, [])


def test_identities() -> None:
    """One id for each repository, however its address is written."""
    urls = (
        "https://Git.example.org/a.git",
        "https://git.example.org/a",
        "http://git.example.org/a/",
    )
    assert len({module._identity(GitAddress(url=one)) for one in urls}) == 1
    moved = [
        module._identity(
            GitalyAddress(address=one, gl_repository="project-7", relative_path=one)
        )
        for one in ("tcp://a:1", "tcp://b:1")
    ]
    assert len(set(moved)) == 1
    assert moved[0].startswith("gitaly:")
    assert module._identity(GitAddress(path=Path("/a"))).startswith("path:")
