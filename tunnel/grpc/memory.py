"""Limit of the memory of all incomplete requests."""

from __future__ import annotations

import attrs

from tunnel.errors import CallError, Status

__all__ = ["RequestMemory", "RequestShare"]


@attrs.define(eq=False)
class RequestMemory:
    """
    Memory of all incomplete requests, on any connection, in bytes.

    A message may be 4 MiB long, a connection may have 100 calls, and 1,000 connections
    may be open: without a limit, requests would need far more memory than a machine
    has.
    """

    total: int = 256 * 1024 * 1024
    #: Bytes that each request may hold even if the total is exhausted, so that small
    #: requests are always accepted.
    each: int = 64 * 1024
    bytes: int = attrs.field(default=0, init=False)


class RequestShare:
    """Memory that one incomplete request holds, as a part of `RequestMemory`."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self._bytes = 0

    def hold(self, count: int) -> None:
        """
        Set the number of received bytes that wait for the rest of their message.

        :raises CallError: if the total limit is exceeded; amounts up to
            `RequestMemory.each` are always accepted.
        """
        memory = self._memory
        more = count - self._bytes
        if more > 0 and count > memory.each and memory.bytes + more > memory.total:
            self.release()
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                "too many large requests are incomplete; try again later",
            )
        self._bytes = count
        memory.bytes += more

    def release(self) -> None:
        """
        Release the memory of a message that is complete, or of a call that has ended.
        """
        self.hold(0)
