"""Streams that are over here, and whose last bytes the peer does not take."""

from __future__ import annotations

from collections.abc import Container, Mapping

from tunnel.errors import ErrorCode
from tunnel.wire.session import Session

__all__ = ["NONE", "STUCK", "Leftovers", "look"]

#: Looks without one byte of credit after which such a stream is reset: five minutes,
#: with one look for each renewal of budgets.  Credit comes for half a window at a time,
#: and who reads 30 KB/s of the largest window has not stopped.
STUCK = 30

#: Number of the stream -> bytes that wait, and how many looks there were as many.
Leftovers = Mapping[int, tuple[int, int]]

NONE: Leftovers = {}


def look(session: Session, here: Container[int], before: Leftovers) -> Leftovers:
    """
    Reset what did not move for too long; returns what is left over now.

    Both sides finished, so nobody here waits for anything; but a peer that gives no
    credit would have us keep what we sent last for as long as the session lives.

    :param here: streams that still have an end here.
    :param before: the result of the last look.
    """
    if session.open_streams == 0:
        return NONE
    left = {}
    for stream_id in session.streams():
        if stream_id in here:
            continue
        queued = session.queued(stream_id)
        known, looks = before.get(stream_id, (queued, 0))
        looks = looks + 1 if known == queued else 0
        if looks > STUCK:
            session.reset(stream_id, ErrorCode.CANCELLED, "its end was not taken")
        else:
            left[stream_id] = (queued, looks)
    return left
