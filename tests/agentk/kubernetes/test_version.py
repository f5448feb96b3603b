"""The version of the API server, from servers of every kind."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from agentk.kubernetes.version import MAX_TEXT, TIMEOUT, ClusterVersion
from tunnel.testing import Pipe

ANSWER = b'{"major": "1", "minor": "36", "gitVersion": "v1.36.1", "platform": "linux"}'


class _Server(Protocol):
    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked = b""

    def dataReceived(self, data: bytes) -> None:
        self.asked += data
        if self.asked.endswith(b"\r\n\r\n") and self.transport is not None:
            self.transport.write(self.answer)


class _Cluster:
    host_header = b"kube:6443"
    path_prefix = "/prefix"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
        self.answer += ANSWER
        self.problem: Exception | None = None
        self.pipes: list[Pipe] = []

    def authorization(self) -> bytes:
        return b"Bearer x"

    def rejected(self) -> None:
        pass

    def endpoint(self) -> Any:
        return self

    def connect(self, factory: Any) -> Deferred[Any]:
        if self.problem is not None:
            return fail(self.problem)
        protocol = factory.buildProtocol(None)
        self.pipes.append(Pipe(self.clock, protocol, _Server(self.answer)))
        return succeed(protocol)


class VersionTests(SynchronousTestCase):
    """Nothing of it ever fails."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = _Cluster(self.clock)
        cluster: Any = self.cluster.endpoint()
        self.version = ClusterVersion(cluster, self.clock)

    def refresh(self, seconds: float = 0) -> None:
        done = Deferred.fromCoroutine(self.version.refresh())
        done.addErrback(lambda failure: None)
        for pipe in self.cluster.pipes:
            pipe.flush()
        if seconds:
            self.assertNoResult(done)
            self.clock.advance(seconds)
        self.successResultOf(done)
        for pipe in self.cluster.pipes:
            pipe.flush()
        # The pool looks once more whether anything is to be done.
        self.clock.advance(2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_asked_again(self) -> None:
        """The answer may be another one then."""
        self.refresh()
        known = self.version.known
        self.assertEqual((known.major, known.git_version), ("1", "v1.36.1"))
        server: Any = self.cluster.pipes[0].protocols[1]
        asked = server.asked
        self.assertIn(b"GET /prefix/version HTTP/1.1\r\nHost: kube:6443\r\n", asked)
        self.assertIn(b"\r\nAuthorization: Bearer x\r\n", asked)
        self.cluster.answer = self.cluster.answer.replace(b"v1.36.1", b"v1.37.0")
        self.refresh()
        self.assertEqual(self.version.known.git_version, "v1.37.0")

    def test_failures(self) -> None:
        """What was known stays known."""
        self.refresh()
        for body in (b"", b"[]", b"nonsense", b"\xff", b"5"):
            length = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            self.cluster.answer = length + body
            self.refresh()
        self.cluster.answer = b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n{}"
        self.refresh()
        self.cluster.problem = ConnectionRefusedError()
        self.refresh()
        self.assertEqual(self.version.known.git_version, "v1.36.1")

    def test_silence(self) -> None:
        """An API server that says nothing holds nobody up for long."""
        self.cluster.answer = b""
        self.refresh(TIMEOUT)
        self.assertEqual(self.version.known.git_version, "")

    def test_long_texts(self) -> None:
        """They travel in every greeting."""
        body = b'{"gitVersion": "%b", "major": 1}' % (b"v" * 1000)
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.cluster.answer = head + body
        self.refresh()
        self.assertEqual(self.version.known.git_version, "v" * MAX_TEXT)
        self.assertEqual(self.version.known.major, "1")
