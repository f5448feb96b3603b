"""One stream: its states, its credit, and what waits to be sent on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from enum import Enum

from tunnel.wire.framing import FrameType
from tunnel.wire.window import ReceiveWindow


class StreamState(Enum):
    """Which sides may still send."""

    OPEN = "open"
    HALF_CLOSED_LOCAL = "half-closed (local)"
    HALF_CLOSED_REMOTE = "half-closed (remote)"
    CLOSED = "closed"

    # Enum's own is a function of Python, and is called for each step of each stream.
    __hash__ = object.__hash__


class StreamInput(Enum):
    """What moves a stream to another state."""

    SEND_FIN = "send FIN"
    RECEIVE_FIN = "receive FIN"
    SEND_RESET = "send RESET"
    RECEIVE_RESET = "receive RESET"

    __hash__ = object.__hash__


_S, _I = StreamState, StreamInput

#: The table of specification section 5.  What is missing is an error: of the peer where
#: it received, of our own code where it sent.
TRANSITIONS: dict[tuple[StreamState, StreamInput], StreamState] = {
    (_S.OPEN, _I.SEND_FIN): _S.HALF_CLOSED_LOCAL,
    (_S.OPEN, _I.RECEIVE_FIN): _S.HALF_CLOSED_REMOTE,
    (_S.OPEN, _I.SEND_RESET): _S.CLOSED,
    (_S.OPEN, _I.RECEIVE_RESET): _S.CLOSED,
    (_S.HALF_CLOSED_LOCAL, _I.RECEIVE_FIN): _S.CLOSED,
    (_S.HALF_CLOSED_LOCAL, _I.SEND_RESET): _S.CLOSED,
    (_S.HALF_CLOSED_LOCAL, _I.RECEIVE_RESET): _S.CLOSED,
    (_S.HALF_CLOSED_REMOTE, _I.SEND_FIN): _S.CLOSED,
    (_S.HALF_CLOSED_REMOTE, _I.SEND_RESET): _S.CLOSED,
    (_S.HALF_CLOSED_REMOTE, _I.RECEIVE_RESET): _S.CLOSED,
}

#: Whether the peer may still send, and whether our side may.
SIDES: dict[StreamState, tuple[bool, bool]] = {
    _S.OPEN: (True, True),
    _S.HALF_CLOSED_LOCAL: (True, False),
    _S.HALF_CLOSED_REMOTE: (False, True),
    _S.CLOSED: (False, False),
}

#: Bound once: to Python 3.11 each look at a member of an enumeration is a call.
SEND_FIN, RECEIVE_FIN = _I.SEND_FIN, _I.RECEIVE_FIN

#: Frame types as plain numbers: they are compared for every frame.
HEADERS = int(FrameType.HEADERS)
DATA = int(FrameType.DATA)

#: What waits to be sent: frame type, bytes.
Chunk = tuple[int, bytes]


class Stream:
    """
    The session's own record of one stream.

    ``state`` follows what was *sent* and received; ``finishing`` is set as soon as our
    side said that nothing follows, though bytes of it may still wait for credit.
    """

    __slots__ = (
        "credit_due",
        "finishing",
        "full",
        "holder",
        "id",
        "queue",
        "queued",
        "receiving",
        "resuming",
        "scheduled",
        "send_credit",
        "sending",
        "state",
        "window",
    )

    def __init__(self, stream_id: int, send_credit: int, window: int) -> None:
        self.id = stream_id
        #: Counts as one when streams are shed: each stream by itself, until charged.
        self.holder: Hashable = stream_id
        self.state = _S.OPEN
        self.receiving = self.sending = True
        self.send_credit = send_credit
        self.window = ReceiveWindow(window)
        self.queue: deque[Chunk] = deque()
        self.queued = 0
        self.finishing = False
        #: In the session's list of streams that can send.
        self.scheduled = False
        #: Its owner was told to wait.
        self.full = False
        #: RESUME was sent, and its answer is not here.
        self.resuming = False
        #: Credit to announce with the next flush.
        self.credit_due = 0

    def move(self, by: StreamInput) -> bool:
        """Change state; False when the table knows no such step."""
        after = TRANSITIONS.get((self.state, by))
        if after is None:
            return False
        self.state = after
        self.receiving, self.sending = SIDES[after]
        return True

    def close(self) -> None:
        """Without a step: it is given up, whatever it was."""
        self.state = _S.CLOSED
        self.receiving = self.sending = False

    @property
    def closed(self) -> bool:
        """Neither side may send."""
        return not (self.receiving or self.sending)

    @property
    def sendable(self) -> bool:
        """Something waits, and there is credit for (some of) it."""
        if not self.queue:
            return self.finishing and self.sending
        kind, data = self.queue[0]
        # A header block is never cut, so it waits until all of it may go.
        return self.send_credit >= (len(data) if kind == HEADERS else 1)
