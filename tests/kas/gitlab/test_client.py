"""Requests to GitLab, and what its answers mean."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IProtocol
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers

from kas.config.gitlab import ApiRateLimit
from kas.gitlab import client as module
from kas.gitlab.client import MAX_BODY, PROVEN, RETRIES, TIMEOUT
from tests.fakes.gitlab import job_answer, user_answer
from tests.kas.gitlab.cases import TOKEN, GitLabCase
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.transport.proxy import ProxyError
from tunnel.transport.tls import TLSHandshakeError


class ClientTests(GitLabCase):
    def ask(self, **rest: Any) -> Deferred[Any]:
        return self.start(self.client.get("agent_info", agent_token=TOKEN, **rest))

    def fails(self, asking: Deferred[Any], status: Status) -> str:
        error: CallError = self.failureResultOf(asking, CallError).value
        self.assertEqual(error.status, status)
        self.assertNotIn(TOKEN.decode(), error.message)
        return error.message

    def test_answer(self) -> None:
        """What GitLab says, and nothing that it would not get from its own kas."""
        said = self.successResultOf(self.ask())
        self.assertEqual((said["agent_id"], said["agent_name"]), (7, "prod"))
        self.assertEqual(self.client.outcomes, {("agent_info", "200"): 1})
        # Its cookie is not sent back.
        self.successResultOf(self.ask())
        self.assert_obeyed()

    def test_refusals(self) -> None:
        for mood, status in (
            ("401", Status.UNAUTHENTICATED),
            ("403", Status.PERMISSION_DENIED),
            ("404", Status.NOT_FOUND),
        ):
            self.gitlab.mood = mood
            self.fails(self.ask(), status)
        self.assertEqual(self.gitlab.asked[TOKEN.decode()], 3)

    def test_wrong(self) -> None:
        """What is no answer of GitLab's says nothing of the agent; it is asked once."""
        for mood, word in (
            ("html", "gitlab.address"),
            ("login", "401"),
            ("moved", "302"),
            ("huge", str(MAX_BODY)),
            ("418", "418"),
            ("501", "501"),
        ):
            self.gitlab.mood = mood
            before = len(self.gitlab.times)
            message = self.fails(self.ask(), Status.UNAVAILABLE)
            self.assertIn(word, message)
            self.assertEqual(len(self.gitlab.times), before + 1)

    def test_another_secret(self) -> None:
        """What another secret signed says nothing of the agent that is asked about."""
        self.gitlab.secret = b"x" * 32
        message = self.fails(self.ask(), Status.UNAVAILABLE)
        self.assertIn("authentication_secret_file", message)
        self.assertIn("Signature", self.gitlab.violations[0])

    def test_taken(self) -> None:
        """GitLab took this kas if it answered what kas signed, and not long ago."""
        self.assertFalse(self.client.is_taken())
        self.gitlab.jobs["job"] = job_answer({})
        # The job's own token is all that this question has.
        self.successResultOf(self.start(self.client.allowed_agents("job")))
        self.assertFalse(self.client.is_taken())
        self.successResultOf(self.ask())
        self.clock.advance(PROVEN - 1)
        self.gitlab.mood = "401"
        self.fails(self.ask(), Status.UNAUTHENTICATED)
        self.assertTrue(self.client.is_taken())
        self.clock.advance(1)
        self.assertFalse(self.client.is_taken())

    def test_tried_again(self) -> None:
        """With growing pauses, at most so often, and as late as GitLab says."""
        self.gitlab.mood = "down"
        asking = self.ask()
        self.wait(2, 0.01)
        self.assertIn("503", self.fails(asking, Status.UNAVAILABLE))
        self.assertEqual(len(self.gitlab.times), 1 + RETRIES)
        times = self.gitlab.times
        for pause, first, later in zip(
            (0.1, 0.2, 0.4, 0.8), times, times[1:], strict=False
        ):
            # The clock goes in steps of a hundredth.
            self.assertLess(abs(later - first - pause), 0.015)
        self.gitlab.mood = "limited"
        begun = self.clock.seconds()
        asking = self.ask()
        self.wait(1.9)
        self.assertEqual(len(self.gitlab.times), 2 + RETRIES)
        self.gitlab.mood = "ok"
        self.wait(0.2)
        self.successResultOf(asking)
        self.assertGreaterEqual(self.gitlab.times[-1] - begun, 2)

    def test_not_tried_again(self) -> None:
        self.gitlab.mood = "down"
        self.fails(self.ask(retry=False), Status.UNAVAILABLE)
        self.assertEqual(len(self.gitlab.times), 1)

    def test_post(self) -> None:
        """With a body, signed, tried again; what is refused with its reason."""
        self.gitlab.users["glpat"] = user_answer(7, None)
        body = {
            "agent_id": 7,
            "access_type": "personal_access_token",
            "access_key": "glpat",
        }

        def post(**rest: Any) -> Deferred[Any]:
            return self.start(self.client.post("authorize_proxy_user", body, **rest))

        self.assertEqual(self.successResultOf(post())["user"]["username"], "alice")
        self.gitlab.mood = "down"
        posting = post()
        self.gitlab.mood = "ok"
        self.wait(0.2)
        self.successResultOf(posting)
        del self.gitlab.users["glpat"]
        message = self.fails(post(explained=True), Status.UNAUTHENTICATED)
        self.assertEqual(
            message, "GitLab responded with 400: 400 Bad request - no user"
        )
        self.assertIn("400", self.fails(post(), Status.UNAVAILABLE))
        self.gitlab.mood = "204"
        self.assertEqual(self.successResultOf(post()), {})
        self.assert_obeyed()

    def test_slow(self) -> None:
        """An answer has its time."""
        self.gitlab.delay = TIMEOUT + 1
        asking = self.ask(retry=False)
        self.wait(TIMEOUT - 1, 1)
        self.assertNoResult(asking)
        self.wait(2, 1)
        self.assertIn("20 s", self.fails(asking, Status.UNAVAILABLE))

    def test_at_once(self) -> None:
        """A GitLab that is slow has no more than so many requests at the same time."""
        self.patch(module, "MAX_REQUESTS", 3)
        self.client = self.make_client()
        self.gitlab.delay = 5
        asked = [self.ask() for _ in range(4)]
        asked.append(self.ask())
        given_up = asked.pop(3)
        given_up.cancel()
        self.failureResultOf(given_up, CancelledError)
        self.assertEqual(len(self.gitlab.times), 3)
        self.wait(6, 1)
        self.assertEqual(len(self.gitlab.times), 4)
        self.wait(6, 1)
        for one in asked:
            self.successResultOf(one)

    def test_given_up(self) -> None:
        """What was sent is finished, though nobody waits; it is not tried again."""
        self.gitlab.delay = 5
        asking = self.ask()
        asking.cancel()
        asking.cancel()
        self.assertNoResult(asking)
        self.wait(5, 1)
        self.assertEqual(self.successResultOf(asking)["agent_id"], 7)
        self.gitlab.mood = "down"
        asking = self.ask()
        asking.cancel()
        self.wait(20, 1)
        self.failureResultOf(asking, CancelledError)
        self.assertEqual(len(self.gitlab.times), 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_given_up_before(self) -> None:
        """What was not sent yet is not sent."""
        while self.client.queue.passed().called:
            pass
        asking = self.ask()
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        self.wait(20, 1)
        self.assertEqual(self.gitlab.times, [])

    def test_refused_connection(self) -> None:
        """Where no GitLab is."""

        class Nowhere:
            def request(self, *args: Any, **rest: Any) -> Deferred[Any]:
                return fail(ConnectionRefusedError())

        self.traversal = Nowhere()  # type: ignore[assignment]
        self.client = self.make_client()
        asking = Deferred.fromCoroutine(
            self.client.get("agent_info", agent_token=TOKEN, retry=False)
        )
        self.assertIn("refused", self.fails(asking, Status.UNAVAILABLE))

    def test_no_tls(self) -> None:
        """Where the certificate is not GitLab's, and where the proxy refuses."""
        for error in (
            TLSHandshakeError("untrusted", "the certificate is not trusted"),
            ProxyError("status", "the proxy answered 407"),
            ConfigurationError(["the CA certificate is not a certificate"]),
        ):
            message = self.fails(self.ask_with(fail(error)), Status.UNAVAILABLE)
            self.assertIn(str(error), message)

    def test_no_host(self) -> None:
        """What no name can be fails before anything is asked."""
        self.client = self.make_client("https://git lab/")
        self.assertIn("invalid host", self.fails(self.ask(), Status.UNAVAILABLE))
        self.assertEqual(self.gitlab.asked, {})

    def test_ipv6(self) -> None:
        """An IPv6 address keeps its brackets where it is written."""
        for address, url, host in (
            ("http://[::1]:8181/gl/", b"http://[::1]:8181/gl/api/v4", b"[::1]:8181"),
            ("https://[fd00::1]", b"https://[fd00::1]/api/v4", b"[fd00::1]"),
        ):
            sent = Sent()
            self.traversal = sent  # type: ignore[assignment]
            self.client = self.make_client(address)
            query = {"id": "a b/ä"}
            Deferred.fromCoroutine(self.client.get("agent_info", query=query))
            Deferred.fromCoroutine(
                self.client.forward("GET", "/api/v4/x", Headers(), None, TOKEN)
            )
            for asked, headers in sent.requests:
                self.assertTrue(asked.startswith(url), asked)
                self.assertEqual(headers.getRawHeaders(b"host"), [host])
            urls = sorted(asked for asked, _ in sent.requests)
            self.assertEqual(len(urls), 2)
            self.assertTrue(urls[0].endswith(b"/agent_info?id=a+b%2F%C3%A4"), urls)

    def test_half_an_answer(self) -> None:
        """A connection on which the body does not come in time is not left open."""
        body = HalfAnAnswer()
        asking = self.ask_with(succeed(body))
        self.clock.advance(TIMEOUT)
        self.assertIn("20 s", self.fails(asking, Status.UNAVAILABLE))
        self.assertEqual(body.lost, 1)
        # What arrives afterwards changes nothing.
        assert body.reader is not None
        body.reader.dataReceived(b"x" * (MAX_BODY + 1))
        body.reader.connectionLost(Failure(ResponseDone()))
        self.assertEqual(body.lost, 1)

    def ask_with(self, answer: Deferred[Any]) -> Deferred[Any]:
        class Answering:
            def request(self, *args: Any, **rest: Any) -> Deferred[Any]:
                return answer

        self.traversal = Answering()  # type: ignore[assignment]
        self.client = self.make_client()
        return Deferred.fromCoroutine(
            self.client.get("agent_info", agent_token=TOKEN, retry=False)
        )


class Sent:
    """Takes requests, and answers none."""

    def __init__(self) -> None:
        self.requests: list[tuple[bytes, Headers]] = []

    def request(
        self, method: bytes, url: bytes, headers: Headers, body: object = None, **_: Any
    ) -> Deferred[Any]:
        self.requests.append((url, headers))
        return Deferred()


class HalfAnAnswer:
    """An answer whose body begins."""

    code = 200
    headers = Headers()
    reader: IProtocol | None = None
    lost = 0

    def deliverBody(self, reader: Any) -> None:
        self.reader = reader
        reader.makeConnection(self)
        reader.dataReceived(b"{")

    def loseConnection(self) -> None:
        self.lost += 1


class LimitedTests(GitLabCase):
    """`gitlab.api_rate_limit`."""

    limit = ApiRateLimit(refill_rate_per_second=10, bucket_size=2)

    def test_rate(self) -> None:
        for _ in range(12):
            self.start(self.client.get("agent_info", agent_token=TOKEN))
        self.assertEqual(len(self.gitlab.times), 2)
        self.wait(0.5)
        self.assertEqual(len(self.gitlab.times), 7)
        self.wait(0.6)
        self.assertEqual(len(self.gitlab.times), 12)
