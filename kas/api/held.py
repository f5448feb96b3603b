"""Requests that are not whole yet, and what all of them together may hold."""

from __future__ import annotations

import attrs

from kas.api.limits import DEFAULT_LIMITS, Limits
from tunnel.errors import CallError, Status

__all__ = ["Held", "Holder"]


@attrs.define(eq=False)
class Held:
    """
    Bytes of all requests that are not whole, on whichever connection.

    A message may have 4 MiB, a connection 100 calls, and there may be 1,000 of them:
    what each of these bounds allows is far more than a machine has.
    """

    limits: Limits = DEFAULT_LIMITS
    bytes: int = attrs.field(default=0, init=False)


class Holder:
    """The part of one request."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._bytes = 0

    def hold(self, count: int) -> None:
        """
        So many bytes wait for the rest of their message.

        :raises CallError: all together are too many; little is taken all the same.
        """
        held = self._held
        more = count - self._bytes
        if more > 0 and count > held.limits.held_each:
            if held.bytes + more > held.limits.held:
                self.release()
                raise CallError(
                    Status.RESOURCE_EXHAUSTED,
                    "too many large requests wait for their end; try again later",
                )
        self._bytes = count
        held.bytes += more

    def release(self) -> None:
        """It is whole, or nobody waits for it."""
        self.hold(0)
