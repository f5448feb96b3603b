"""Modules in agentk ask GitLab through kas: both halves, joined in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from zope.interface import provider
from zope.interface.verify import verifyObject

from kas.gitlab.client import TIMEOUT, GitLabClient
from kas.gitlab.metrics import GitLabCollector
from kas.gitlab.module_requests import (
    IDLE,
    MAX_HEAD,
    MAX_PER_AGENT,
    MAX_REQUESTS,
    RESERVED,
    GitLabForAgents,
)
from tests.kas.gitlab.cases import TOKEN, GitLabCase
from tunnel.api import IAgentModuleFactory, IGitLab, IGitLabResponse
from tunnel.errors import CallError, Status
from tunnel.hosting.gitlab_access import MAX_TIME, SERVICE, check_path
from tunnel.pb import gitlab_access_pb2 as pb
from tunnel.testing import ModulePair

PREFIX = "/api/v4/internal/kubernetes/modules/remote_development"


@attrs.frozen
class _Nothing:
    pass


@provider(IAgentModuleFactory)
class _Module:
    name = "remote_development"
    configuration = _Nothing

    def __init__(self, api: Any) -> None:
        self.api = api

    async def start(self) -> None:
        """Nothing."""

    async def stop(self) -> None:
        """Nothing."""


class _Transport:
    """The connection under an answer."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def pauseProducing(self) -> None:
        self.did.append("pause")

    def resumeProducing(self) -> None:
        self.did.append("resume")

    def loseConnection(self) -> None:
        self.did.append("lose")


class _Response:
    """An answer of GitLab that the test gives part by part."""

    phrase = b"OK"

    def __init__(self, code: int = 200, **fields: str) -> None:
        self.code = code
        self.headers = Headers({name: [value] for name, value in fields.items()})
        self.transport = _Transport()

    def deliverBody(self, protocol: Any) -> None:
        self.protocol = protocol
        protocol.makeConnection(self.transport)

    def end(self, reason: Exception | None = None) -> None:
        self.protocol.connectionLost(Failure(reason or ResponseDone()))


class _Held:
    """An agent whose requests the test answers."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.bodies: list[Any] = []
        self.asked: list[Deferred[Any]] = []

    def request(
        self, method: bytes, uri: bytes, headers: Headers, body: Any
    ) -> Deferred[Any]:
        self.bodies.append(body)
        self.asked.append(Deferred(self._cancel))
        return self.asked[-1]

    def _cancel(self, deferred: Deferred[Any]) -> None:
        self.cancelled += 1
        if self.bodies[-1] is not None:
            self.bodies[-1].stopProducing()


class _Consumer:
    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)


class _AccessCase(GitLabCase):
    def setUp(self) -> None:
        super().setUp()
        self.pair = ModulePair(self.clock)
        self.half = self.pair.agent_half(_Module)
        self.gitlab_of_module = self.half.api.gitlab
        self.serve(self.client)

    def serve(self, client: GitLabClient | None, token: bytes | None = TOKEN) -> None:
        self.pair.server.dispatcher.withdraw("kas")
        self.access = GitLabForAgents(client, lambda _: token, self.clock)
        self.access.serve(self.pair.server.dispatcher)

    def hold(self) -> _Held:
        """Have the test answer in GitLab's place."""
        held = _Held()
        self.traversal: Any = held
        self.client = self.make_client()
        self.serve(self.client)
        return held

    def settle(self) -> None:
        for _ in range(8):
            self.pair.settle()
            if not isinstance(self.traversal, _Held):
                self.traversal.flush()
            self.clock.advance(0)

    def done(self, doing: Coroutine[Any, Any, Any]) -> Any:
        started = self.start(doing)
        self.settle()
        return self.successResultOf(started)

    def refused(self, doing: Coroutine[Any, Any, Any]) -> CallError:
        started = self.start(doing)
        self.settle()
        error = self.failureResultOf(started, CallError).value
        assert isinstance(error, CallError)
        return error

    async def ask(self, method: str, path: str, **rest: Any) -> tuple[Any, Any]:
        response = await self.gitlab_of_module.request(method, path, **rest)
        return response, json.loads(await response.read())


class AccessTests(_AccessCase):
    """GitLab is the fake."""

    def test_signed_request_as_this_module(self) -> None:
        verifyObject(IGitLab, self.gitlab_of_module)
        response, said = self.done(
            self.ask("POST", "/reconcile", query={"a": "b c&d"}, body=b"{}")
        )
        verifyObject(IGitLabResponse, response)
        self.assertEqual(response.status, 201)
        self.assertEqual(response.headers["x-from"], ("gitlab",))
        self.assertNotIn("set-cookie", response.headers)
        self.assertEqual(said["agent"], 7)
        self.assertEqual(said["module"], "remote_development")
        self.assertEqual(said["uri"], f"{PREFIX}/reconcile?a=b+c%26d")
        self.assertEqual(said["body"], "{}")
        self.assertEqual(self.client.outcomes["modules", "201"], 1)
        self.assertEqual(self.access.running, {})
        self.assert_obeyed()

    def test_a_body_of_unknown_length(self) -> None:
        async def parts() -> AsyncIterator[bytes]:
            for one in (b"one", b"", b"two" * 50_000):
                yield one

        _, said = self.done(self.ask("PUT", "", body=parts()))
        self.assertEqual(said["body"], "one" + "two" * 50_000)
        self.assertEqual(said["uri"], PREFIX)
        self.assert_obeyed()

    def test_no_credential_and_no_connection_of_the_module(self) -> None:
        fields = {
            "Authorization": "Bearer stolen",
            "Cookie": "a=b",
            "Private-Token": "x",
            "job_token": "x",
            "Gitlab-Agent-Api-Request": "x",
            "gitlab-kas-api-request": "x",
            "X-Forwarded-For": "1.2.3.4",
            "Host": "elsewhere.example",
            "Connection": "close, x-mine",
            "X-Mine": "1",
            "Te": "trailers",
            "X-Kept": "2",
            "Content-Type": "text/x",
        }
        _, said = self.done(self.ask("GET", "/x", headers=fields))
        self.assertEqual(
            set(said["headers"]),
            {
                "host",
                "connection",
                "authorization",
                "gitlab-kas-api-request",
                "user-agent",
                "x-kept",
                "content-type",
            },
        )
        self.assertEqual(said["headers"]["authorization"], [f"Bearer {TOKEN.decode()}"])
        self.assertEqual(said["headers"]["host"], ["gitlab.example.com"])
        self.assert_obeyed()

    def test_redirects_are_answers(self) -> None:
        self.gitlab.mood = "moved"
        response = self.done(self.gitlab_of_module.request("GET", "/x"))
        self.assertEqual(response.status, 302)
        self.assertEqual(sum(self.gitlab.paths.values()), 1)

    def test_errors_of_gitlab_are_answers(self) -> None:
        self.gitlab.mood = "down"
        response, _ = self.done(self.ask("POST", "/x", body=b"1"))
        self.assertEqual(response.status, 503)
        self.assertEqual(sum(self.gitlab.paths.values()), 1)

    def test_an_upgrade(self) -> None:
        for fields in ({"Upgrade": "websocket"}, {"connection": "Upgrade"}):
            error = self.refused(self.ask("GET", "/x", headers=fields))
            self.assertIs(error.status, Status.INVALID_ARGUMENT)
            self.assertIn("upgrades are not", error.message)
        self.assertEqual(sum(self.gitlab.paths.values()), 0)

    def test_fields_that_cannot_be(self) -> None:
        for fields in ({"a b": "c"}, {"a": "b\r\nc: d"}, {"a": "\u0416"}):
            error = self.refused(self.ask("GET", "/x", headers=fields))
            self.assertIs(error.status, Status.INVALID_ARGUMENT)
        error = self.refused(self.ask("GET", "/x", headers={"a": "b" * MAX_HEAD}))
        self.assertIn("head has more than", error.message)

    def test_more_of_an_answer_than_is_wanted(self) -> None:
        async def read() -> None:
            response = await self.gitlab_of_module.request("GET", "/x")
            await response.read(limit=10)

        self.assertIs(self.refused(read()).status, Status.RESOURCE_EXHAUSTED)
        self.settle()
        self.assertEqual(self.access.running, {})

    def test_kas_without_gitlab(self) -> None:
        self.serve(None)
        error = self.refused(self.ask("GET", "/x"))
        self.assertIs(error.status, Status.FAILED_PRECONDITION)
        self.assertIn("kas has no GitLab", error.message)

    def test_an_agent_whose_token_is_not_known(self) -> None:
        self.serve(self.client, token=None)
        self.assertIs(self.refused(self.ask("GET", "/x")).status, Status.UNAVAILABLE)

    def test_paths_that_lead_elsewhere(self) -> None:
        for path in (
            "x",
            "/..",
            "/a/../b",
            "/./a",
            "/%2e%2E/a",
            "/.%2e",
            "/a%2fb",
            "/a%5Cb",
            "/a\\b",
            "/a%252e",
            "/a%00",
            "/a?b",
            "/a%3Fb",
            "/a#b",
            "/a;b",
            "/a%3bb",
            "//a",
            "/a//b",
            "/a%",
            "/a%2",
            "/a b",
            "/\u0416",
            "/" + "a" * 4096,
            "/a\n",
        ):
            with self.subTest(path), self.assertRaises(CallError) as caught:
                check_path(path)
            self.assertIs(caught.exception.status, Status.INVALID_ARGUMENT)
        for path in ("", "/", "/a/", "/a.b/..c/%C3%A9", "/v1:x@y"):
            check_path(path)

    def test_kas_checks_what_agentk_says(self) -> None:
        def head(module: str, path: str, method: str = "GET") -> pb.HttpRequest:
            request = pb.Request(method=method, url_path=path)
            message = pb.HttpRequest(
                header=pb.HttpRequest.Header(request=request, content_length=0)
            )
            message.header.extra.Pack(pb.HeaderExtra(module_name=module))
            return message

        for message in (
            head("a/../b", "/x"),
            head("..", "/x"),
            head("", "/x"),
            head("ok", "/../other"),
            head("ok", "/x", "GET / HTTP/1.1"),
            head("ok", "/x", "CONNECT"),
            head("ok", "/x", "TRACE"),
            pb.HttpRequest(data=pb.Data(data=b"x")),
            pb.HttpRequest(upgrade_data=pb.Data(data=b"x")),
        ):

            async def ask(message: pb.HttpRequest = message) -> Any:
                client = self.pair.agent.client(SERVICE)
                call = client.open("MakeRequest")
                await call.send(message)
                call.finish()
                return [one async for one in call]

            self.assertIs(self.refused(ask()).status, Status.INVALID_ARGUMENT)
        self.assertEqual(sum(self.gitlab.paths.values()), 0)
        self.assertEqual(self.access.running, {})

    def test_a_body_that_is_not_what_its_head_says(self) -> None:
        data = pb.HttpRequest(data=pb.Data(data=b"four"))
        end = pb.HttpRequest(trailer=pb.Trailer())
        for length, rest in (
            (3, (data, end)),
            (5, (data, end)),
            (-1, (data,)),
            (4, (pb.HttpRequest(upgrade_data=pb.Data(data=b"x")),)),
        ):

            async def ask(length: int = length, rest: Any = rest) -> Any:
                head = pb.HttpRequest.Header(
                    request=pb.Request(method="PUT", url_path="/x"),
                    content_length=length,
                )
                head.extra.Pack(pb.HeaderExtra(module_name="ok"))
                call = self.pair.agent.client(SERVICE).open("MakeRequest")
                for message in (pb.HttpRequest(header=head), *rest):
                    await call.send(message)
                call.finish()
                return [one async for one in call]

            error = self.refused(ask())
            self.assertIs(error.status, Status.INVALID_ARGUMENT, error)
        self.assertEqual(sum(self.gitlab.paths.values()), 0)
        self.assertEqual(self.access.running, {})


class FlowTests(_AccessCase):
    """The test answers in GitLab's place."""

    def setUp(self) -> None:
        super().setUp()
        self.held = self.hold()

    def begin(self, **rest: Any) -> Deferred[Any]:
        rest.setdefault("timeout", 3600.0)
        request = self.gitlab_of_module.request("PUT", "/x", **rest)
        begun = self.start(request)
        self.settle()
        return begun

    def test_gitlab_slows_the_module_down(self) -> None:
        given = 0

        async def parts() -> AsyncIterator[bytes]:
            nonlocal given
            for _ in range(200):
                given += 1
                yield b"x" * 65536

        begun = self.begin(body=parts())
        body, consumer = self.held.bodies[0], _Consumer()
        body.pauseProducing()
        body.startProducing(consumer)
        self.settle()
        self.assertEqual(consumer.written, 65536)
        self.assertLess(given, 100)
        before = given
        body.resumeProducing()
        self.settle()
        self.assertGreater(given, before)
        begun.addErrback(lambda failure: failure.trap(CancelledError, CallError))
        begun.cancel()
        self.settle()
        self.assertEqual(self.held.cancelled, 1)

    def test_the_module_slows_gitlab_down(self) -> None:
        begun = self.begin()
        answer = _Response()
        self.held.asked[0].callback(answer)
        self.settle()
        response = self.successResultOf(begun)
        for _ in range(100):
            if answer.transport.did[-1:] == ["pause"]:
                break
            answer.protocol.dataReceived(b"y" * 65536)
            self.settle()
        else:
            self.fail("GitLab was never paused")
        reading = self.start(response.read(100 * 65536))
        self.settle()
        self.assertEqual(answer.transport.did[-1], "resume")
        answer.end()
        self.settle()
        self.assertEqual(set(self.successResultOf(reading)), set(b"y"))

    def test_the_module_gives_up(self) -> None:
        begun = self.begin()
        self.assertEqual(self.access.running, {"1": 1})
        begun.addErrback(lambda failure: failure.trap(CancelledError))
        begun.cancel()
        self.settle()
        self.assertEqual(self.held.cancelled, 1)
        self.assertEqual(self.access.running, {})

    def test_the_module_gives_up_within_an_answer(self) -> None:
        begun = self.begin()
        answer = _Response()
        self.held.asked[0].callback(answer)
        self.settle()
        self.successResultOf(begun).close()
        self.settle()
        self.assertEqual(answer.transport.did[-1], "lose")
        self.assertEqual(self.access.running, {})

    def test_the_connection_to_gitlab(self) -> None:
        begun = self.begin()
        self.held.asked[0].errback(ConnectionRefusedError())
        self.settle()
        error: Any = self.failureResultOf(begun, CallError).value
        self.assertIs(error.status, Status.UNAVAILABLE)
        self.assertIn("kas cannot reach GitLab", error.message)
        self.assertEqual(self.client.outcomes["modules", "broken"], 1)

    def test_half_an_answer(self) -> None:
        begun = self.begin()
        answer = _Response()
        self.held.asked[0].callback(answer)
        self.settle()
        answer.protocol.dataReceived(b"half")
        answer.end(ConnectionResetError())
        self.settle()
        error = self.refused(self.successResultOf(begun).read())
        self.assertIs(error.status, Status.UNAVAILABLE)
        self.assertIn("from kas to GitLab broke", error.message)

    def test_gitlab_is_silent(self) -> None:
        begun = self.begin()
        self.clock.advance(TIMEOUT - 1)
        self.settle()
        self.assertNoResult(begun)
        self.clock.advance(1)
        self.settle()
        error: Any = self.failureResultOf(begun, CallError).value
        self.assertIs(error.status, Status.DEADLINE_EXCEEDED)
        self.assertIn("kas cancelled a request to GitLab", error.message)
        self.assertEqual(self.access.running, {})

    def test_gitlab_is_silent_within_an_answer(self) -> None:
        begun = self.begin()
        self.held.asked[0].callback(_Response())
        self.settle()
        reading = self.start(self.successResultOf(begun).read())
        self.clock.advance(IDLE)
        self.settle()
        error: Any = self.failureResultOf(reading, CallError).value
        self.assertIs(error.status, Status.DEADLINE_EXCEEDED)

    def test_a_module_that_does_not_read(self) -> None:
        begun = self.begin()
        answer = _Response()
        self.held.asked[0].callback(answer)
        for _ in range(100):
            answer.protocol.dataReceived(b"y" * 65536)
            self.settle()
            if answer.transport.did[-1] == "pause":
                break
        self.clock.advance(IDLE)
        self.settle()
        self.assertEqual(answer.transport.did[-1], "lose")
        self.assertEqual(self.access.running, {})
        error = self.refused(self.successResultOf(begun).read(100 * 65536))
        self.assertIs(error.status, Status.DEADLINE_EXCEEDED)

    def test_a_body_that_fails(self) -> None:
        async def parts() -> AsyncIterator[bytes]:
            yield b"x"
            raise KeyError("mine")

        begun = self.begin(body=parts())
        self.failureResultOf(begun, KeyError)
        self.assertEqual(self.access.running, {})

    def test_too_many_of_one_agent(self) -> None:
        under_way = [self.begin() for _ in range(MAX_PER_AGENT)]
        error: Any = self.failureResultOf(self.begin(), CallError).value
        self.assertIs(error.status, Status.RESOURCE_EXHAUSTED)
        metrics = GitLabCollector(self.client, self.access).collect()
        found = {one.name: one.samples[-1].value for one in metrics}
        self.assertEqual(found["kas_gitlab_module_requests"], MAX_PER_AGENT)
        self.assertEqual(self.client.outcomes["modules", "refused"], 1)
        for one in under_way:
            one.addErrback(lambda failure: failure.trap(CancelledError))
            one.cancel()
        self.settle()
        self.assertEqual(self.access.running, {})

    def open_calls(self, count: int, agent_id: str = "") -> list[Any]:
        """Calls that send nothing yet."""
        if agent_id:
            agent = self.pair.server.tunnel.agent
            assert agent is not None
            self.pair.server.tunnel.agent = attrs.evolve(agent, agent_id=agent_id)
        calls = [
            self.pair.agent.client(SERVICE).open("MakeRequest") for _ in range(count)
        ]
        self.settle()
        return calls

    def test_calls_that_send_nothing(self) -> None:
        """They hold their places for a minute, and not for an hour."""
        calls = self.open_calls(MAX_PER_AGENT)
        self.assertEqual(self.access.running.total(), MAX_PER_AGENT)
        reading = [self.start(one.response()) for one in calls]
        self.clock.advance(IDLE)
        self.settle()
        self.assertEqual(self.access.running, {})
        self.assertEqual(self.held.asked, [])
        for one in reading:
            error: Any = self.failureResultOf(one, CallError).value
            self.assertIs(error.status, Status.DEADLINE_EXCEEDED)

    def test_an_agent_that_has_none_gets_one(self) -> None:
        """Five agents that take all they can leave room for others."""
        for number in range(5):
            self.open_calls(MAX_PER_AGENT, str(number))
        # The fifth had none.
        self.assertEqual(self.access.running.total(), MAX_REQUESTS - RESERVED + 1)
        for number in range(10, 9 + RESERVED):
            self.open_calls(2, str(number))
        self.assertEqual(self.access.running.total(), MAX_REQUESTS)
        self.open_calls(1, "99")
        self.assertEqual(self.access.running.total(), MAX_REQUESTS)
        self.clock.advance(IDLE)
        self.settle()
        self.assertEqual(self.access.running, {})

    def test_no_longer_than_an_hour(self) -> None:
        """However often a byte comes."""
        begun = self.begin()
        answer = _Response()
        self.held.asked[0].callback(answer)
        self.settle()
        response = self.successResultOf(begun)
        for _ in range(int(MAX_TIME // 50) - 1):
            self.clock.advance(50)
            answer.protocol.dataReceived(b"y")
            self.settle()
            self.start(anext(aiter(response)))
            self.settle()
        self.assertEqual(self.access.running.total(), 1)
        self.clock.advance(50)
        self.settle()
        self.assertEqual(self.access.running, {})

    def test_a_head_that_is_too_large(self) -> None:
        begun = self.begin()
        self.held.asked[0].callback(_Response(a="b" * MAX_HEAD))
        self.settle()
        error: Any = self.failureResultOf(begun, CallError).value
        self.assertIs(error.status, Status.UNAVAILABLE)
