"""What a transport of Twisted's knows and does not say."""

from __future__ import annotations

from twisted.internet.tcp import Connection

__all__ = ["unsent"]


def unsent(transport: object) -> int | None:
    """
    How many bytes *transport* holds that the kernel has not taken yet.

    None if it does not say.  Besides sockets, every layer of this package says it for
    the socket at its bottom, by a method of the same name.
    """
    if isinstance(transport, Connection):
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen
    below = getattr(transport, "unsent", None)
    return None if below is None else below()
