"""Two tunnels with streams between them, for the tests of this directory."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tunnel.api import IStream
from tunnel.testing import RecordingReceiver, connected

METHOD = "/tests.Raw/Stream"


@attrs.define(eq=False, slots=False)
class Accepted(RecordingReceiver):
    """The receiver on the side that was called, with its stream."""

    stream: Any = None


class StreamTestCase(SynchronousTestCase):
    """Opens streams from kas to the agent."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.join()

    def join(self, **kw: Any) -> None:
        self.agent, self.kas, self.pipe = connected(self.clock, **kw)
        self.accepted: list[Accepted] = []
        self.agent.dispatcher.handle_stream("tests", METHOD, self.accept)

    def accept(self, stream: IStream, open_: Any) -> Accepted:
        receiver = Accepted(stream=stream)
        receiver.headers.append(open_.metadata)
        self.accepted.append(receiver)
        return receiver

    def open(self, **kw: Any) -> tuple[Any, RecordingReceiver, Accepted]:
        receiver = RecordingReceiver()
        stream = self.kas.open_stream(METHOD, receiver, **kw)
        self.pipe.flush()
        return stream, receiver, self.accepted[-1]
