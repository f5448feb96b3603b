"""
Writes to TCP sockets at once if possible, and the state of their buffers.

Twisted's ``transport.write`` never sends.  It appends to a buffer and asks the reactor
to call back when the socket is writable, so that one write costs an ``epoll_ctl``, one
more turn of the reactor, the ``send``, and a second ``epoll_ctl``.  The socket of a
tunnel can nearly always accept a flush at once.  On Twisted 26.10, GETs of 200 B by
``transport.write`` alone cost kas 1.26 and agentk 1.28 times the CPU on one connection,
1.13 and 1.11 times on 64, with 1.3 times the median latency on one.

This is useful only for code that collects its writes and makes them once per reactor
turn, because every call is a system call.

This is the only file that reads private attributes of Twisted: the data in the buffers
of a `Connection`, and whether it is closing. Twisted has no public interface for
either; ``tests/tunnel/transport/test_eager.py`` fails when they change.  (One attribute
of a port is set, in ``tunnel/program/listening.py``.)
"""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.tcp import Connection

__all__ = ["unsent", "write"]


class Writable(Protocol):
    """A transport."""

    def write(self, data: bytes) -> None: ...


def write(transport: Writable, data: bytes) -> None:
    """
    Write *data*, trying the socket first; the order is preserved.

    A producer is paused as soon as the kernel accepts no more data.  Twisted would let
    it write 64 KiB first, and later data that is more urgent would wait behind it.

    *transport* may be any transport except one that sends file descriptors.  If it is
    not a plain Twisted socket, or its buffer already contains data, its own ``write``
    is called.

    A dead connection is not reported by this function: *data* goes into the buffer, its
    ``send`` fails in the next turn of the reactor, and ``connectionLost`` follows as
    always, never from inside the caller's ``write``.
    """
    if (
        not isinstance(transport, Connection)
        or transport._tempDataBuffer
        or transport.dataBuffer
        or not transport.connected
        or transport.disconnecting
        or transport._writeDisconnecting
        or transport._aborting
        or transport.TLS
        # A pull producer is resumed when the buffer becomes empty. If the producer's
        # data bypassed the buffer, the producer would never be resumed.
        or (transport.producer is not None and not transport.streamingProducer)
    ):
        transport.write(data)
        return
    try:
        # The socket is called directly, because Twisted's `writeSomeData` makes three
        # calls that cost as much as this one.
        sent = transport.socket.send(data)
    except OSError:
        # The socket is full or dead; Twisted's own write will determine which.
        sent = 0
    if sent == len(data):
        return
    transport.write(data[sent:])
    producer: Any = transport.producer
    if producer is not None and not transport.producerPaused:
        transport.producerPaused = True
        producer.pauseProducing()


def unsent(transport: object) -> int | None:
    """
    Return the number of bytes in *transport* that the kernel has not accepted yet.

    None if the number is unknown. Besides sockets, every layer of this package returns
    the number for the underlying socket, by a method of the same name.
    """
    if isinstance(transport, Connection):
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen
    below = getattr(transport, "unsent", None)
    return None if below is None else below()
