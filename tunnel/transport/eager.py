"""
Send at once what a TCP connection can take at once, and say what it holds.

Twisted's ``transport.write`` never sends.  It appends to a buffer and asks the reactor
to call back when the socket is writable, so that one write costs an ``epoll_ctl``, one
more turn of the reactor, the ``send``, and a second ``epoll_ctl``.  The socket of a
tunnel can nearly always take a flush at once.  On Twisted 26.10, GETs of 200 B by
``transport.write`` alone cost kas 1.26 and agentk 1.28 times the CPU on one connection,
1.13 and 1.11 times on 64, with a median latency of 1.3 times on one.

It pays only where writes are collected and made once per reactor turn: every call here
is a system call.

All that the product reads of Twisted's private attributes is read here: what waits in
the buffers of a `Connection`, and whether it is closing.  Twisted has no public way to
ask for either; ``tests/tunnel/transport/test_eager.py`` fails when they change.  (One
attribute of a port is set, in ``tunnel/program/listening.py``.)
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

    A producer is paused as soon as the kernel accepts no more.  Twisted would let it
    write 64 KiB first, and more urgent data that comes later would wait behind these.

    *transport* may be any transport except one that sends file descriptors.  If it is
    not a plain Twisted socket, or has data in its buffer already, this calls its
    ``write``.

    A connection that turns out to be dead is not reported from here: *data* takes the
    ordinary path, its ``send`` fails in the next turn of the reactor, and
    ``connectionLost`` follows as always, never from inside the caller's ``write``.
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
        # A pull producer is asked for more after the buffer ran empty.  Were its data
        # sent past the buffer, it would never be asked again.
        or (transport.producer is not None and not transport.streamingProducer)
    ):
        transport.write(data)
        return
    try:
        # Past Twisted's `writeSomeData`, whose three calls cost as much as this one.
        sent = transport.socket.send(data)
    except OSError:
        # Full, or dead: the ordinary way finds out which.
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
    How many bytes *transport* holds that the kernel has not taken yet.

    None if it does not say.  Besides sockets, every layer of this package says it for
    the socket at its bottom, by a method of the same name.
    """
    if isinstance(transport, Connection):
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen
    below = getattr(transport, "unsent", None)
    return None if below is None else below()
