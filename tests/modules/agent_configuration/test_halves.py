"""Both halves against each other: Git changes, and modules of agentk are told."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import attrs
import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, capturedLogs, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from modules.agent_configuration import follow, rpc_pb2
from modules.agent_configuration import server as module
from modules.agent_configuration.agent import CONFIGURATION, AgentConfigurationAgent
from modules.agent_configuration.document import MAX_SECTIONS, Document, path_of
from modules.agent_configuration.server import AgentConfigurationServer
from tunnel.api import (
    AgentMoved,
    AgentProject,
    ConfigurationRead,
    ConfigurationRefused,
    Draining,
    GitAddress,
    GitalyAddress,
    GitPushed,
    IAgentModule,
    IClientCall,
    IServerModule,
    RepositorySettings,
)
from tunnel.config import field
from tunnel.errors import CallError, Status, Stopping
from tunnel.testing import FakeRepository, ModulePair
from tunnel.testing.ends import AGENT
from tunnel.toolkit.log_budget import LINES_AT_ONCE

URL = "https://git.example.org/clusters.git"
FILE = ".gitlab/agents/agent-1/config.yaml"
DEBUG = "observability: {logging: {level: debug}}\n"
FLUX = "flux: {webhook_receiver_url: http://flux}\n"


@attrs.frozen
class _Logging:
    level: str = "info"


@attrs.frozen
class _Observability:
    logging: _Logging = field(factory=_Logging, doc="logs")


@attrs.frozen
class _Flux:
    webhook_receiver_url: str = "default"

    def __attrs_post_init__(self) -> None:
        if self.webhook_receiver_url == "http://refused":
            raise ValueError("no such receiver")


async def read_one(call: IClientCall) -> Any:
    """The first response of a call."""
    async for response in call:
        return response
    return None


class HalvesTests(SynchronousTestCase):
    """One agent, one repository."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.pair = ModulePair(self.clock)
        self.repository = self.pair.repositories.open(GitAddress(url=URL))
        self.levels: list[str] = []
        self.urls: list[str] = []
        self.log = EventLoggingObserver()
        globalLogPublisher.addObserver(self.log)
        self.addCleanup(globalLogPublisher.removeObserver, self.log)

    def begin(self, project: AgentProject | None = None, **settings: Any) -> None:
        settings.setdefault("repositories", {"clusters": RepositorySettings(url=URL)})
        self.server = self.pair.server_half(AgentConfigurationServer, **settings)
        if project is not None:
            self.server._api.gitlab.projects["1"] = project
        self.agent = self.pair.agent_half(AgentConfigurationAgent)
        self.pair.sections.follow(
            "one",
            "observability",
            _Observability,
            lambda section: self.levels.append(section.logging.level),
        )
        self.pair.sections.follow(
            "two",
            "flux",
            _Flux,
            lambda section: self.urls.append(section.webhook_receiver_url),
        )
        self.pair.start()
        self.pass_time(0)

    def pass_time(self, seconds: float) -> None:
        """Time passes, in steps, and bytes move."""
        self.pair.settle()
        end = self.clock.seconds() + seconds
        while True:
            times = [one.getTime() for one in self.clock.getDelayedCalls()]
            due = min((one for one in times if one <= end), default=None)
            if due is None:
                break
            self.clock.advance(max(0.0, due - self.clock.seconds()))
            self.pair.settle()
        self.clock.advance(max(0.0, end - self.clock.seconds()))
        self.pair.settle()

    def pushed(self) -> None:
        """A push is announced, and what follows from it is done."""
        self.server._api.events.publish(GitPushed("clusters"))
        self.pass_time(2)

    def said(self) -> list[str]:
        return [
            formatEvent(event)
            for event in self.log
            if "agent_configuration.agent" in event["log_namespace"]
        ]

    def test_interfaces(self) -> None:
        """Both are modules."""
        self.begin()
        self.assertTrue(verifyObject(IServerModule, self.server))
        self.assertTrue(verifyObject(IAgentModule, self.agent))

    def test_changes(self) -> None:
        """A module is told its own section, and only when that has changed."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        self.assertEqual((self.levels, self.urls), (["debug"], []))
        commit = self.repository.commit({FILE: DEBUG + FLUX})
        self.pushed()
        self.assertEqual((self.levels, self.urls), (["debug"], ["http://flux"]))
        self.assertTrue(any(commit in line for line in self.said()))
        self.repository.commit({"README": "x", FILE: FLUX})
        self.pushed()
        self.assertEqual(self.levels, ["debug", "info"])
        self.assertEqual(self.urls, ["http://flux"])

    def test_other_files(self) -> None:
        """A commit that leaves the file alone is not even told."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        before = len(self.said())
        self.repository.commit({FILE: DEBUG, "apps/x.yaml": "x"})
        self.pushed()
        self.assertEqual(len(self.said()), before)

    def test_each_commit_is_posted(self) -> None:
        """GitLab gets the file of a new commit, also where that left it alone."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        registered = self.server._api.gitlab.registered
        before = len(registered)
        self.assertEqual(registered[-1][0], "1")
        self.repository.commit({FILE: DEBUG, "apps/x.yaml": "x"})
        self.pushed()
        self.assertEqual(len(registered), before + 1)
        self.assertEqual(registered[-1], registered[0])
        self.assertEqual(len([one for one in self.said() if "in effect" in one]), 1)
        # Once: another look finds no new commit, and neither does a second agentk.
        self.pushed()
        self.agent._end()
        self.pass_time(1)
        self.agent._begin()
        self.pass_time(2)
        self.assertEqual(len(registered), before + 1)
        # The file is another one, and says the same.
        self.repository.commit({FILE: DEBUG + "# a comment\n"})
        self.pushed()
        self.assertEqual(len(registered), before + 2)
        # A file that cannot be used is not posted.
        self.repository.commit({FILE: "observability: 1\n"})
        self.pushed()
        self.repository.commit({FILE: "observability: 1\n", "README": "y"})
        self.pushed()
        self.assertEqual(len(registered), before + 2)

    def told_at(self, commit: str) -> Deferred[bool]:
        """What asks whether the agent was told of a commit."""
        wanted = self.server.delivered(AGENT, GitAddress(url=URL), commit)
        found: Deferred[bool] = Deferred.fromCoroutine(wanted)
        return found

    def test_told_at_a_commit(self) -> None:
        """Who asks waits until agentk was told; no push has to be announced."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        kept: Deferred[int] = Deferred()
        self.server._store = Mock(set=lambda key, value: kept)
        commit = self.repository.commit({FILE: FLUX})
        asked = self.told_at(commit)
        self.pass_time(2)
        self.assertNoResult(asked)
        kept.callback(1)
        self.assertEqual((self.successResultOf(asked), self.urls), (True, []))
        self.pass_time(0)
        self.assertEqual(self.urls, ["http://flux"])
        self.assertTrue(self.successResultOf(self.told_at(commit)))

    def test_told_at_other_commits(self) -> None:
        """Of another repository there is nothing to tell; a branch is elsewhere."""
        first = self.repository.commit({FILE: DEBUG})
        self.begin()
        second = self.repository.commit({FILE: FLUX})
        self.pushed()
        self.assertFalse(self.successResultOf(self.told_at(first)))
        self.assertTrue(self.successResultOf(self.told_at(second)))
        address = GitAddress(url="https://git.example.org/other.git")
        other = self.server.delivered(AGENT, address, first)
        self.assertTrue(self.successResultOf(Deferred.fromCoroutine(other)))

    def test_told_at_a_commit_of_another_spelling(self) -> None:
        """Modules may spell one repository differently."""
        first = self.repository.commit({FILE: DEBUG})
        self.begin()
        address = GitAddress(url=URL + "/")

        def told_at(commit: str) -> Deferred[bool]:
            wanted = self.server.delivered(AGENT, address, commit)
            return Deferred.fromCoroutine(wanted)

        self.assertTrue(self.successResultOf(told_at(first)))
        kept: Deferred[int] = Deferred()
        self.server._store = Mock(set=lambda key, value: kept)
        commit = self.repository.commit({FILE: FLUX})
        asked = told_at(commit)
        self.pass_time(2)
        self.assertNoResult(asked)
        kept.callback(1)
        self.assertTrue(self.successResultOf(asked))
        # Known from before, though the branch has moved on.
        self.repository.commit({FILE: DEBUG})
        self.pushed()
        self.assertFalse(self.successResultOf(told_at(commit)))
        # It may be a fork that had the commit, too.
        self.assertTrue(self.successResultOf(told_at("e" * 40)))

    def test_told_at_another_repository_while_this_one_is_away(self) -> None:
        """Files of other repositories do not wait for it."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        self.repository.down = CallError(Status.UNAVAILABLE, "no route")
        address = GitAddress(url="https://git.example.org/other.git")
        other = self.server.delivered(AGENT, address, "e" * 40)
        self.assertTrue(self.successResultOf(Deferred.fromCoroutine(other)))

    def test_told_at_another_repository_while_this_one_is_silent(self) -> None:
        """Files of other repositories wait two seconds, and not again for a minute."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        silence: list[Deferred[str]] = []

        async def resolve(ref: str) -> str:
            silence.append(Deferred())
            return await silence[-1]

        self.patch(self.repository, "resolve", resolve)
        address = GitAddress(url="https://git.example.org/other.git")

        def told_at(commit: str) -> Deferred[bool]:
            wanted = self.server.delivered(AGENT, address, commit)
            return Deferred.fromCoroutine(wanted)

        asked = told_at("e" * 40)
        self.assertNoResult(asked)
        self.pass_time(2)
        self.assertTrue(self.successResultOf(asked))
        self.assertTrue(self.successResultOf(told_at("f" * 40)))

    def test_told_at_a_commit_that_cannot_be_read(self) -> None:
        self.repository.commit({FILE: DEBUG})
        self.begin()
        commit = self.repository.commit({FILE: FLUX})
        asked = self.told_at(commit)
        self.repository.down = CallError(Status.UNAVAILABLE, "no route")
        self.pass_time(2)
        error = self.failureResultOf(asked, CallError).value
        self.assertEqual(error.status, Status.UNAVAILABLE)

    def test_told_at_a_commit_whose_file_cannot_be_read(self) -> None:
        """It is not taken for told, though the branch is known to be at it."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        commit = self.repository.commit({FILE: FLUX})
        away = CallError(Status.UNAVAILABLE, "no route")
        for _ in range(2):
            broken = self.patch(self.repository, "read", Mock(side_effect=away))
            asked = self.told_at(commit)
            self.pass_time(2)
            self.failureResultOf(asked, CallError)
            broken.restore()
        asked = self.told_at(commit)
        self.pass_time(2)
        self.assertTrue(self.successResultOf(asked))
        self.assertEqual(self.urls, ["http://flux"])

    def test_told_at_a_commit_when_the_agent_leaves(self) -> None:
        self.repository.commit({FILE: DEBUG})
        self.begin()
        asked = self.told_at(self.repository.commit({FILE: FLUX}))
        self.successResultOf(Deferred.fromCoroutine(self.agent.stop()))
        self.pair.settle()
        self.failureResultOf(asked, CallError)

    def test_told_at_a_commit_when_kas_stops(self) -> None:
        """GitOps then has its agents ask another kas, and shows no failure."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        asked = self.told_at(self.repository.commit({FILE: FLUX}))
        self.successResultOf(Deferred.fromCoroutine(self.server.stop()))
        self.failureResultOf(asked, Stopping)

    def test_poll(self) -> None:
        """Without any push it is looked at once a period."""
        self.repository.commit({FILE: DEBUG})
        self.begin(poll_period=60.0)
        self.repository.commit({FILE: FLUX})
        self.pass_time(53)
        self.assertEqual(self.levels, ["debug"])
        self.pass_time(8)
        self.assertEqual(self.levels, ["debug", "info"])
        self.assertEqual(self.repository.resolved, 2)

    def test_flapping(self) -> None:
        """Ten commits a second for ten seconds: the last arrives, few are looked at."""
        self.repository.commit({FILE: FLUX})
        self.begin()
        before = self.repository.resolved
        for number in range(100):
            self.repository.commit(
                {FILE: f"flux: {{webhook_receiver_url: http://flux/{number}}}"}
            )
            self.server._api.events.publish(GitPushed("clusters"))
            self.pass_time(0.1)
        self.pass_time(2)
        self.assertEqual(self.urls[-1], "http://flux/99")
        self.assertLessEqual(self.repository.resolved - before, 12)
        self.assertLessEqual(len(self.urls), 13)
        # What did not change was not told.
        self.assertEqual(self.levels, [])

    def test_broken_and_mended(self) -> None:
        """What worked stays; file, line, column and commit are told to both sides."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        commit = self.repository.commit({FILE: "observability:\n  loging: {}\n"})
        self.pushed()
        self.assertEqual(self.levels, ["debug"])
        told = f"commit {commit[:12]}: {FILE}:2:3: observability: unknown key 'loging'"
        self.assertTrue(any(told in line for line in self.said()), self.said())
        self.assertIn(told, self.server._api.agents.problems["1"])
        self.pushed()
        self.assertEqual(sum(told in line for line in self.said()), 1)
        self.repository.commit({FILE: FLUX})
        self.pushed()
        self.assertEqual((self.levels, self.urls), (["debug", "info"], ["http://flux"]))
        self.assertEqual(self.server._api.agents.problems, {})

    def test_problems_are_told_to_other_modules(self) -> None:
        """Also when they are over, and the commit is the one of before."""
        told: list[ConfigurationRefused] = []
        commit = self.repository.commit({FILE: DEBUG})
        self.begin()
        self.agent._api.events.subscribe(ConfigurationRefused, told.append)
        self.repository.down = CallError(Status.UNAVAILABLE, "Git is away")
        self.pushed()
        self.pass_time(60)
        self.assertIn("Git is away", told[-1].problems[0])
        self.repository.down = None
        self.pass_time(120)
        self.assertEqual(told[-1].problems, ())
        self.assertEqual(self.agent._commit, commit)
        self.assertEqual(self.levels, ["debug"])
        self.repository.commit({FILE: "observability: {loging: {}}\n"})
        self.pushed()
        self.assertIn("unknown key 'loging'", told[-1].problems[0])
        # It is mended while the tunnel is away.
        self.agent._end()
        self.repository.rewind(commit)
        self.pass_time(1)
        self.agent._begin()
        self.pass_time(120)
        self.assertEqual(told[-1].problems, ())

    def test_the_first_configuration_is_announced(self) -> None:
        """Once, when it is in effect."""
        read: list[ConfigurationRead] = []
        self.pair.agent.bus.subscribe("test", ConfigurationRead, read.append)
        self.repository.commit({FILE: "observability: {loging: {}}\n"})
        self.begin()
        self.assertEqual(read, [])
        for text in (DEBUG, FLUX):
            self.repository.commit({FILE: text})
            self.pushed()
            self.assertEqual(len(read), 1)

    def test_all_or_nothing(self) -> None:
        """What one module of agentk refuses no module gets."""
        self.repository.commit({FILE: FLUX})
        told: list[ConfigurationRefused] = []
        self.pair.agent.bus.subscribe("test", ConfigurationRefused, told.append)
        self.begin()
        commit = self.repository.commit(
            {FILE: DEBUG + "flux: {webhook_receiver_url: http://refused}\n"}
        )
        self.pushed()
        self.assertEqual((self.levels, self.urls), ([], ["http://flux"]))
        last = self.said()[-1]
        self.assertIn(commit[:12], last)
        self.assertIn("no such receiver", last)
        # kas shows it, until there is another; and again to an agentk that comes back.
        api = self.server._api
        self.assertIn("agentk refuses it: commit", api.agents.problems["1"])
        self.assertIn("no such receiver", api.agents.problems["1"])
        self.agent._end()
        self.pass_time(1)
        self.assertEqual(api.agents.problems, {})
        self.agent._begin()
        self.pass_time(2)
        self.assertIn("no such receiver", api.agents.problems["1"])
        self.repository.commit({FILE: DEBUG})
        self.pushed()
        self.assertEqual((self.levels, self.urls[-1]), (["debug"], "default"))
        self.assertEqual(api.agents.problems, {})
        self.assertEqual([len(one.problems) for one in told], [1, 0])

    def test_refused_by_a_stranger(self) -> None:
        """Once for each commit that is told, in so many characters."""
        self.repository.commit({FILE: FLUX})
        self.begin()
        client = self.agent._api.calls.client(CONFIGURATION)
        commit = self.agent._commit

        def refuse(commit: str) -> None:
            request = rpc_pb2.RefusedRequest(
                commit_id=commit, problems=["x" * 10_000 + "\n"] * 100
            )
            self.pair.run(client.call("Refused", request))

        for wrong in ("", "0" * 40):
            with self.assertRaises(CallError):
                refuse(wrong)
        self.assertEqual(self.server._api.agents.problems, {})
        refuse(commit)
        shown = self.server._api.agents.problems["1"]
        self.assertLess(len(shown), 20 * 410)
        with self.assertRaises(CallError) as caught:
            refuse(commit)
        self.assertIs(caught.exception.status, Status.FAILED_PRECONDITION)

    def test_no_file(self) -> None:
        """Without a file everything is the default, and that is no error."""
        self.repository.commit({"README": "x"})
        self.begin()
        self.assertEqual(self.server._api.agents.problems, {})
        self.repository.commit({FILE: DEBUG})
        self.pushed()
        self.repository.commit({"README": "x"})
        self.pushed()
        self.assertEqual(self.levels, ["debug", "info"])

    def test_what_git_can_do_wrong(self) -> None:
        """An empty tree, no branch, a server that is down: what was stays."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        self.repository.commit({})
        self.pushed()
        self.assertIn("no files at all", self.server._api.agents.problems["1"])
        self.repository.remove("HEAD")
        self.pushed()
        self.assertIn("has no HEAD", self.server._api.agents.problems["1"])
        self.repository.commit({FILE: DEBUG})
        self.repository.down = CallError(Status.UNAVAILABLE, "the fetch failed (down)")
        self.pass_time(120)
        self.assertIn("the fetch failed", self.server._api.agents.problems["1"])
        self.assertEqual(self.levels, ["debug"])
        self.repository.down = None
        self.pass_time(120)
        self.assertEqual(self.server._api.agents.problems, {})
        self.assertEqual(self.levels, ["debug"])

    def test_backoff(self) -> None:
        """A Git server that is down is asked ever less often."""
        self.repository.down = CallError(Status.UNAVAILABLE, "down")
        self.begin()
        self.pass_time(71)
        self.assertEqual(self.repository.resolved, 4)
        self.pass_time(600)
        self.assertEqual(self.repository.resolved, 14)

    def test_an_instance_id_of_another_agent(self) -> None:
        """Each agentk chooses its own: the streams of two agents stay apart."""
        commit = self.repository.commit({FILE: DEBUG})
        self.begin()
        server = self.server
        told: dict[str, list[str]] = {"x": [], "y": []}

        async def follow(agent: Any) -> None:
            call = SimpleNamespace(agent=agent)
            request = rpc_pb2.ConfigurationRequest()
            async for one in server.get_configuration(request, call):
                told[agent.agent_id].append(one.commit_id)

        twins = {
            name: attrs.evolve(AGENT, agent_id=name, instance_id=b"the same")
            for name in "xy"
        }
        streams = [Deferred.fromCoroutine(follow(one)) for one in twins.values()]
        self.pass_time(2)
        self.assertEqual(told, {"x": [commit], "y": [commit]})
        for one in streams:
            self.assertNoResult(one)
        # One refuses its configuration, and the other may do so, too.
        request = rpc_pb2.RefusedRequest(commit_id=commit, problems=["no"])
        for agent in twins.values():
            call = SimpleNamespace(agent=agent)
            self.successResultOf(Deferred.fromCoroutine(server.refused(request, call)))
        # One stream is cancelled, and the other goes on.
        streams[1].addErrback(lambda failure: failure.trap(CancelledError))
        streams[1].cancel()
        newer = self.repository.commit({FILE: FLUX})
        waits = Deferred.fromCoroutine(
            server.delivered(twins["x"], GitAddress(url=URL), newer)
        )
        self.assertNoResult(waits)
        self.pushed()
        self.assertTrue(self.successResultOf(waits))
        self.assertEqual(told, {"x": [commit, newer], "y": [commit]})

    def test_a_crowd_of_one_agent(self) -> None:
        """So many agentk of one agent; its configuration is written down once."""
        self.patch(module, "MAX_STREAMS", 5)
        self.repository.commit({FILE: DEBUG})
        self.begin()
        written: list[str] = []
        store, server = self.server._store, self.server

        class Counting:
            async def get(self, key: str) -> Any:
                return await store.get(key)

            async def set(self, key: str, value: bytes) -> Any:
                written.append(key)
                return await store.set(key, value)

        server._store = Counting()

        async def follow(call: Any) -> None:
            request = rpc_pb2.ConfigurationRequest()
            async for _ in server.get_configuration(request, call):
                pass

        replaced: list[str] = []

        def begin(agent_id: str, number: int) -> Deferred[None]:
            agent = attrs.evolve(AGENT, agent_id=agent_id, instance_id=b"%d" % number)

            def cancel(reason: str) -> None:
                replaced.append(reason)
                found.cancel()

            found = Deferred.fromCoroutine(
                follow(SimpleNamespace(agent=agent, cancel=cancel))
            )
            self.pass_time(2)
            return found

        # One is the agentk of this test.
        following = [begin("1", number) for number in range(4)]
        refused = self.failureResultOf(begin("1", 9), CallError).value
        self.assertIs(refused.status, Status.RESOURCE_EXHAUSTED)
        self.assertEqual(written, [])
        other = begin("2", 10)
        self.assertNoResult(other)
        # The same agentk again takes the place of its last stream.
        following.append(begin("1", 3))
        self.assertNoResult(following[-1])
        self.failureResultOf(following[3], CancelledError)
        self.assertEqual(
            replaced, ["a newer GetConfiguration of this agentk replaced this"]
        )
        for one in (*following, other):
            one.addErrback(lambda failure: failure.trap(CancelledError))
            one.cancel()
        self.assertEqual(server._counts, {"1": 1})

    def open_again(self, client: Any) -> IClientCall:
        """Another stream of the same agentk, which reads nothing."""
        call: IClientCall = client.open("GetConfiguration")

        async def send() -> None:
            await call.send(rpc_pb2.ConfigurationRequest())

        Deferred.fromCoroutine(send())
        self.pair.settle()
        return call

    def test_a_stream_that_takes_the_place_of_an_unread_one(self) -> None:
        """kas holds the responses of the last stream alone."""
        section = "remote_development: {enabled: true, dns_zone: %s}\n" % ("x" * 90_000)
        self.repository.commit({FILE: section})
        self.begin()
        self.pass_time(2)
        session = self.pair.server.tunnel.session
        self.pair.server.tunnel.writer.pauseProducing()
        client = self.agent._api.calls.client(CONFIGURATION)
        calls = [self.open_again(client) for _ in range(20)]
        self.assertGreater(session.all_queued, 90_000)
        self.assertLess(session.all_queued, 100_000)
        self.assertEqual(self.server._counts, {"1": 1})
        self.pair.server.tunnel.writer.resumeProducing()
        self.pair.settle()
        for call in calls[:-1]:
            error = self.failureResultOf(
                Deferred.fromCoroutine(read_one(call)), CallError
            ).value
            self.assertIs(error.status, Status.CANCELLED)
            self.assertIn("a newer GetConfiguration", error.message)
        last = self.successResultOf(Deferred.fromCoroutine(read_one(calls[-1])))
        self.assertGreater(len(last.configuration.remote_development), 90_000)

    def test_streams_have_a_rate(self) -> None:
        """A burst, and a few each second after that."""
        self.repository.commit({FILE: DEBUG})
        self.patch(module, "OPENED_AT_ONCE", 3)
        self.begin()
        self.server._rates.clear()
        client = self.agent._api.calls.client(CONFIGURATION)
        for _ in range(3):
            self.open_again(client)
        refused = self.failureResultOf(
            Deferred.fromCoroutine(read_one(self.open_again(client))), CallError
        ).value
        self.assertIs(refused.status, Status.RESOURCE_EXHAUSTED)
        self.clock.advance(1 / module.OPENED_PER_SECOND)
        last = self.open_again(client)
        self.successResultOf(Deferred.fromCoroutine(read_one(last)))

    def test_a_name_that_cannot_have_a_file_is_not_counted(self) -> None:
        """A stream that fails at its start has ended."""
        self.begin()
        agent = attrs.evolve(AGENT, agent_id="2", agent_name="a..b")
        responses = self.server.get_configuration(
            rpc_pb2.ConfigurationRequest(), SimpleNamespace(agent=agent)
        )
        with self.assertRaises(CallError):
            self.pair.run(anext(responses))
        self.assertNotIn("2", self.server._counts)

    def warnings(self) -> list[str]:
        return [
            formatEvent(event)
            for event in self.log
            if "agent_configuration.server" in event["log_namespace"]
            and event["log_level"] is LogLevel.warn
        ]

    def test_a_refusal_is_logged_once_for_each_commit(self) -> None:
        """A new stream permits one more report, but no more lines."""
        commit = self.repository.commit({FILE: FLUX})
        self.begin()
        client = self.agent._api.calls.client(CONFIGURATION)
        for _ in range(10):
            call = self.open_again(client)
            self.successResultOf(Deferred.fromCoroutine(read_one(call)))
            request = rpc_pb2.RefusedRequest(commit_id=commit, problems=["no"])
            self.pair.run(client.call("Refused", request))
            self.assertIn("no", self.server._api.agents.problems["1"])
        self.assertEqual(
            self.warnings(),
            ["configuration of agent agent-1: agentk refuses it: no"],
        )

    def test_many_agentk_of_an_agent_share_its_log_budget(self) -> None:
        """Each instance chooses its id, and each reports many problems."""
        commit = self.repository.commit({FILE: FLUX})
        self.begin()
        for number in range(5):
            agent = attrs.evolve(AGENT, instance_id=b"%d" % number)
            call = SimpleNamespace(agent=agent)
            responses = self.server.get_configuration(
                rpc_pb2.ConfigurationRequest(), call
            )
            self.pair.run(anext(responses))
            request = rpc_pb2.RefusedRequest(commit_id=commit, problems=["no"] * 20)
            self.pair.run(self.server.refused(request, call))
            self.pair.run(responses.aclose())
        self.assertEqual(len(self.warnings()), LINES_AT_ONCE)

    def test_a_file_is_logged_once_for_each_commit(self) -> None:
        """Though its reader starts again whenever all agentk were gone."""
        self.repository.commit({FILE: "observability: {loging: {}}\n"})
        self.begin()
        for _ in range(3):
            self.agent._end()
            self.pass_time(2)
            self.agent._begin()
            self.pass_time(2)
        self.assertEqual(len(self.warnings()), 1)

    def test_a_store_that_is_interrupted(self) -> None:
        """The next stream writes the configuration again."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        document = Document("c1", {})
        self.server._kept["1"] = "c1"
        self.server._store = SimpleNamespace(set=lambda key, value: Deferred())
        agent = attrs.evolve(AGENT, agent_id="1")
        keeping = Deferred.fromCoroutine(self.server._keep(agent, document))
        keeping.cancel()
        self.failureResultOf(keeping, CancelledError)
        self.assertNotIn("1", self.server._kept)

    def test_last_good_outlives_kas(self) -> None:
        """A new agentk that meets a broken file gets what worked before."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        self.pair.stop()
        self.repository.commit({FILE: "broken: ["})
        other = ModulePair(Clock())
        other.store = self.pair.store
        self.pair._modules.clear()
        self.levels.clear()
        pair, self.pair = self.pair, other
        other.repositories = pair.repositories
        other._stores = pair._stores
        self.clock = other.clock
        self.begin()
        self.assertEqual(self.levels, ["debug"])
        self.assertIn("not YAML", self.server._api.agents.problems["1"])

    def test_other_agents(self) -> None:
        """An agent that no repository has is told so once, and asks no more."""
        settings = RepositorySettings(url=URL, agents=("prod-*",))
        self.begin(repositories={"clusters": settings})
        self.pass_time(3600)
        self.assertEqual(self.repository.resolved, 0)

    def test_first_match(self) -> None:
        """The first repository that has the agent counts."""
        other = GitAddress(url="https://git.example.org/other.git")
        self.repository.commit({FILE: DEBUG})
        self.pair.repositories.open(other).commit({FILE: FLUX})
        self.begin(
            repositories={
                "none": RepositorySettings(url="https://git/none", agents=("x",)),
                "clusters": RepositorySettings(url=URL, agents=("agent-*",)),
                "other": RepositorySettings(url=other.url),
            }
        )
        self.assertEqual((self.levels, self.urls), (["debug"], []))

    def test_draining(self) -> None:
        """A kas that stops ends the streams: they would keep it waiting."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        self.assertEqual(len(self.server._streams), 1)
        self.server._api.events.publish(Draining())
        self.pass_time(1)
        self.assertEqual(self.server._streams, {})

    def test_nobody_follows(self) -> None:
        """A repository of which no agent is here is not looked at."""
        self.repository.commit({FILE: DEBUG})
        self.begin()
        self.agent._end()
        self.pass_time(0)
        before = self.repository.resolved
        self.pass_time(3600)
        self.assertEqual(self.repository.resolved, before)
        self.pushed()
        self.assertEqual(self.repository.resolved, before)
        # One that comes back is told what is there now.
        self.repository.commit({FILE: FLUX})
        self.agent._begin()
        self.pass_time(2)
        self.assertEqual(self.urls, ["http://flux"])

    def test_agents_that_join(self) -> None:
        """What was fetched serves those that come until the period is over."""
        self.repository.commit({FILE: DEBUG})
        self.begin(poll_period=60.0)
        followed = self.server._followed["clusters"]
        for number in range(50):
            followed.follow(f"other-{number}")
            self.pass_time(1)
        self.assertEqual(self.repository.resolved, 1)
        self.pass_time(11)
        self.assertEqual(self.repository.resolved, 2)

    def test_project_of_gitlab(self) -> None:
        """GitLab says which repository it is, and is told what is in it, once."""
        address = GitalyAddress(address="tcp://gitaly:8075", token="secret")
        project = AgentProject(
            full_path="group/clusters", default_branch="main", repository=address
        )
        repository = self.pair.repositories.open(address)
        repository.commit({FILE: DEBUG}, ref="main")
        self.begin(project, repositories={})
        self.assertEqual(self.levels, ["debug"])
        repository.commit({FILE: FLUX}, ref="main")
        self.server._api.events.publish(GitPushed("group/clusters"))
        self.pass_time(2)
        self.assertEqual(self.urls, ["http://flux"])
        self.agent._begin()
        self.pass_time(2)
        self.assertEqual(
            self.server._api.gitlab.registered,
            [
                ("1", {"observability": {"logging": {"level": "debug"}}}),
                ("1", {"flux": {"webhook_receiver_url": "http://flux"}}),
            ],
        )

    def test_moved_project(self) -> None:
        """A project that GitLab moved leaves nothing behind."""
        places = [GitalyAddress(address=f"tcp://gitaly-{n}:8075") for n in range(3)]
        for place in places:
            self.pair.repositories.open(place).commit({FILE: DEBUG})
        self.begin(_project(places[0]), repositories={})
        for place in places[1:]:
            self.agent._end()
            self.pass_time(1)
            self.server._api.gitlab.projects["1"] = _project(place)
            self.agent._begin()
            self.pass_time(2)
        self.assertEqual([one for one, _ in self.server._of_gitlab], [places[2]])

    def test_moves_while_followed(self) -> None:
        """What is told comes from the new place at once, on the same stream."""
        places = [GitalyAddress(address=f"tcp://gitaly-{n}:8075") for n in range(2)]
        old, new = (self.pair.repositories.open(place) for place in places)
        old.commit({FILE: DEBUG})
        self.begin(_project(places[0]), repositories={})
        (stream,) = self.server._streams.values()
        api = self.server._api
        api.gitlab.projects["1"] = _project(places[1])
        new.commit({FILE: DEBUG})
        new.commit({FILE: FLUX})
        api.events.publish(AgentMoved("another"))
        self.pass_time(2)
        self.assertEqual(self.urls, [])
        api.events.publish(AgentMoved("1"))
        self.pass_time(2)
        self.assertEqual(self.urls, ["http://flux"])
        before = old.resolved
        self.pass_time(3600)
        self.assertEqual(old.resolved, before)
        new.commit({FILE: DEBUG})
        api.events.publish(GitPushed("group/a"))
        self.pass_time(2)
        self.assertEqual(self.levels, ["debug", "info", "debug"])
        self.assertEqual(list(self.server._streams.values()), [stream])
        api.events.publish(AgentMoved("1"))
        api.events.publish(Draining())
        self.pass_time(1)
        self.assertEqual(self.server._streams, {})

    def test_names_of_gitlab(self) -> None:
        """Another project of GitLab can have an agent of the name: the path decides."""
        for pattern, urls in (
            ("agent-1", []),
            ("*", []),
            ("group/b:*", []),
            ("group/a:agent-1", ["http://flux"]),
            ("group/*:agent-*", ["http://flux"]),
        ):
            self.setUp()
            place = GitalyAddress(address="tcp://gitaly:8075")
            self.pair.repositories.open(place).commit({FILE: DEBUG})
            self.repository.commit({FILE: FLUX})
            settings = RepositorySettings(url=URL, agents=(pattern,))
            self.begin(_project(place), repositories={"clusters": settings})
            self.assertEqual(self.urls, urls, pattern)
            warned = any("write group/a:agent-1" in formatEvent(e) for e in self.log)
            self.assertEqual(warned, ":" not in pattern)

    def test_path_without_gitlab(self) -> None:
        """An agent of the identity file has no project: only its name counts."""
        settings = RepositorySettings(url=URL, agents=("group/a:agent-1", "*:*"))
        self.begin(repositories={"clusters": settings})
        self.pass_time(10)
        self.assertEqual(self.repository.resolved, 0)


def _project(place: GitalyAddress) -> AgentProject:
    return AgentProject(full_path="group/a", default_branch="", repository=place)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no zlib",
        zlib.compress(b"no JSON"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b"{}"),
        zlib.compress(b'["commit", []]'),
        zlib.compress(b"[1, {}]"),
        zlib.compress(b'["commit", {"flux": "%b"}]' % (b"x" * MAX_SECTIONS)),
        zlib.compress(b" " * (module.MAX_INFLATED + 1)),
    ],
)
def test_damaged_last_good(value: bytes) -> None:
    """A value of the store that cannot be a configuration is logged and left alone."""
    pair = ModulePair(Clock())
    server: Any = pair.server_half(AgentConfigurationServer)
    stored = Deferred.fromCoroutine(server._store.set("1", value))
    assert stored.called
    agent = SimpleNamespace(agent_id="1", agent_name="agent-1")
    found: list[Any] = []
    with capturedLogs() as events:
        Deferred.fromCoroutine(server._last_good(agent)).addBoth(found.append)
    assert found == [None]
    assert "last good configuration of agent agent-1: " in formatEvent(events[0])


def test_a_file_that_trips_kas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of other agents of the repository are read all the same."""
    told: dict[str, Document] = {}

    async def read(repository: Any, commit: str, name: str, limit: int) -> Document:
        if name == "bad":
            raise RecursionError
        return Document(commit, {})

    monkeypatch.setattr(follow, "read_document", read)
    clock, address = Clock(), GitAddress(url=URL)
    repository = FakeRepository()
    names = "bad", "good"
    repository.commit({path_of(name): "" for name in names})
    followed = follow.FollowedRepository(
        "clusters",
        address,
        repository,
        "HEAD",
        300.0,
        1000,
        clock,
        lambda: 0.0,
        told.__setitem__,
        lambda *_: None,
    )
    with capturedLogs() as events:
        for name in names:
            followed.follow(name)
        clock.advance(1)
    assert told["good"].written == {}
    assert told["bad"].written is None
    assert "bad/config.yaml: kas failed to read it" in told["bad"].problems[0]
    assert len([one for one in events if "log_failure" in one]) == 1
    assert followed._failures == 0
