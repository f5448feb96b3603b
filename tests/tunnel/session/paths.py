"""Streams that survive their path, and such paths, for the tests of this directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tunnel.api import ConnectedAgent
from tunnel.errors import ErrorCode, SessionClosed, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.resume import Keeper, ResumableStream, ResumeLimits
from tunnel.testing import RecordingReceiver

GRACE = 60.0
ID = b"r" * 16

LIMITS = ResumeLimits(kept_per_stream=100, kept=250, ack_every=50, lingering=2)

LOST = SessionClosed(ErrorCode.DEAD_PEER, "it said nothing")


class Path:
    """A stream of a tunnel, as a resumable one sees it; notes what it is told."""

    def __init__(self) -> None:
        self.receiver: Any = None
        self.resumable: Any = None
        self.agent: ConnectedAgent | None = None
        self.told: list[Any] = []
        self.full = False
        self.full_changed: Any = None

    def send_headers(self, block: bytes) -> None:
        self.told.append(("headers", block))

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def finish(self) -> None:
        self.told.append("fin")

    def reset(self, code: int, message: str) -> None:
        self.told.append(ErrorCode(code).name)
        if self.receiver is not None:
            reason = StreamReset(ErrorCode(code), message, by_peer=False)
            self.receiver.stream_closed(reason)

    def ack(self, received: int) -> None:
        self.told.append(("ack", received))

    def accept_resume(self, received: int) -> None:
        self.told.append(("resumed", received))

    def pauseProducing(self) -> None:
        self.told.append("pause")

    def resumeProducing(self) -> None:
        self.told.append("resume")


class ResumableTestCase(SynchronousTestCase):
    """Both ends of streams, over paths that a test makes and breaks."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.keeper = Keeper(self.clock, lambda: GRACE, LIMITS)
        self.receiver = RecordingReceiver()
        self.lost: list[None] = []

    def opener(self, path: Path | None = None) -> tuple[ResumableStream, Any]:
        """The end that looks for paths, and the first of them."""
        stream = ResumableStream(
            self.keeper, ID, self.receiver, lambda: self.lost.append(None)
        )
        path = path or Path()
        stream.attach(path)  # type: ignore[arg-type]
        return stream, path

    def accepted(
        self, resume_id: bytes = ID, accept: Callable[..., Any] | None = None
    ) -> tuple[ResumableStream, Any]:
        """The end that waits for them."""
        path: Any = Path()
        open_ = pb.Open(method="/test", resume_id=resume_id)
        stream: Any = self.keeper.accept(
            path, open_, accept or (lambda stream, open_: self.receiver)
        )
        return stream, path

    def resume(self, received: int = 0, resume_id: bytes = ID) -> Any:
        """The other end comes with a new path."""
        path: Any = Path()
        path.receiver = self.keeper.resume(
            path, pb.Resume(resume_id=resume_id, received=received)
        )
        return path

    def assert_nothing_left(self) -> None:
        """No byte is kept and no timer runs."""
        self.assertEqual(self.keeper.held, 0)
        self.assertEqual(len(self.keeper), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
