"""The pipe that authors of modules test with keeps its own promises."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.producers import Producer
from tunnel.testing import Pipe


class Recorder(Protocol):
    """Keeps what happened to it."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.lost: list[Failure] = []

    def dataReceived(self, data: bytes) -> None:
        self.received.append(data)

    def connectionLost(self, reason: Any = None) -> None:
        self.lost.append(reason)


class PipeTests(SynchronousTestCase):
    """A connection in memory behaves as one of sockets."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.first, self.second = Recorder(), Recorder()
        self.pipe = Pipe(self.clock, self.first, self.second, capacity=100, chunk=10)
        self.ends = self.pipe.transports

    def test_delivers_in_pieces(self) -> None:
        """No piece is larger than a chunk, and nothing is lost."""
        self.ends[0].write(b"x" * 25)
        self.ends[1].writeSequence([b"a", b"b"])
        self.pipe.flush()
        self.assertEqual([len(d) for d in self.second.received], [10, 10, 5])
        self.assertEqual(self.first.received, [b"ab"])

    def test_pauses_writers(self) -> None:
        """A full pipe pauses, one that is half empty resumes."""
        producer = Producer()
        self.ends[0].registerProducer(producer, True)
        self.ends[0].write(b"x" * 100)
        self.assertEqual(producer.told, [])
        self.ends[0].write(b"x")
        self.ends[0].write(b"x")
        self.assertEqual(producer.told, ["pause"])
        for _ in range(5):
            self.pipe.step()
        self.assertEqual(producer.told, ["pause"])
        self.pipe.step()
        self.assertEqual(producer.told, ["pause", "resume"])
        self.ends[0].unregisterProducer()
        self.ends[0].write(b"x" * 1000)
        self.pipe.flush()
        self.assertEqual(producer.told, ["pause", "resume"])

    def test_pauses_readers(self) -> None:
        """Who does not read gets nothing."""
        self.ends[1].pauseProducing()
        self.ends[0].write(b"x")
        self.pipe.flush()
        self.assertEqual(self.second.received, [])
        self.ends[1].resumeProducing()
        self.pipe.flush()
        self.assertEqual(self.second.received, [b"x"])

    def test_lose(self) -> None:
        """What was written arrives, then both sides are told once."""
        self.ends[0].write(b"last")
        self.ends[0].stopProducing()
        self.ends[0].write(b"too late")
        self.pipe.flush()
        self.pipe.flush()
        self.assertEqual(self.second.received, [b"last"])
        for end in (self.first, self.second):
            self.assertEqual(
                [f.check(ConnectionDone) for f in end.lost], [ConnectionDone]
            )
        self.ends[1].write(b"to nobody")
        self.assertEqual(self.ends[1].buffer, b"")

    def test_abort(self) -> None:
        """What was written does not arrive."""
        self.ends[0].write(b"never")
        self.ends[0].abortConnection()
        self.pipe.flush()
        self.assertEqual(self.second.received, [])
        self.assertEqual(len(self.first.lost), 1)

    def test_cut(self) -> None:
        """A pulled cable: nothing crosses, and the other side is told nothing."""
        self.pipe.cut = True
        self.ends[0].write(b"x")
        self.pipe.flush()
        self.assertEqual(self.second.received, [])
        self.ends[0].abortConnection()
        self.pipe.flush()
        self.assertEqual((len(self.first.lost), len(self.second.lost)), (1, 0))

    def test_addresses(self) -> None:
        """They look like those of loopback."""
        self.assertEqual(self.ends[0].getPeer().host, "127.0.0.1")  # type: ignore[attr-defined]
        self.assertEqual(self.ends[0].getHost().type, "TCP")  # type: ignore[attr-defined]

    def test_never_at_rest(self) -> None:
        """Two sides that answer each other for ever are found out."""

        def again(data: bytes) -> None:
            self.ends[1].write(data)

        def back(data: bytes) -> None:
            self.ends[0].write(data)

        self.second.dataReceived = again  # type: ignore[method-assign]
        self.first.dataReceived = back  # type: ignore[method-assign]
        self.ends[0].write(b"ping")
        self.assertRaises(AssertionError, self.pipe.flush, 100)
