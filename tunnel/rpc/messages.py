"""Protobuf messages on a stream: decoded on arrival, and sent with back-pressure."""

from __future__ import annotations

import struct
from collections import deque

from google.protobuf.message import Message
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from tunnel.api import IStream
from tunnel.errors import CallError, Status
from tunnel.rpc.message_buffer import MessageBuffer

#: Maximum size of a message in bytes, in both directions.  Larger data needs a raw
#: stream.
MAX_MESSAGE = 4 * 1024 * 1024

#: Maximum number of bytes of complete messages that wait for their reader; above it,
#: the peer is paused.
MAX_PENDING = 256 * 1024

#: Number of bytes that count for a message in addition to its size, because even empty
#: messages need memory.
OVERHEAD = 64

_LENGTH = struct.Struct(">I")

#: Number of bytes of the length that precedes each message.
LENGTH_SIZE = _LENGTH.size


def _length_of(buffer: bytearray, start: int) -> int:
    """
    Return the length of the message whose prefix begins at *start*.

    :raises CallError: if the message is too large.
    """
    length: int = _LENGTH.unpack_from(buffer, start)[0]
    if length > MAX_MESSAGE:
        raise CallError(Status.RESOURCE_EXHAUSTED, "a message is too large")
    return length


def encode_message(message: Message) -> bytes:
    """
    Return a message preceded by its length.

    :raises CallError: if the message is too large.
    """
    data = message.SerializeToString()
    if len(data) > MAX_MESSAGE:
        raise CallError(
            Status.RESOURCE_EXHAUSTED,
            f"a message has {len(data)} bytes, but a call allows at most {MAX_MESSAGE}",
        )
    return _LENGTH.pack(len(data)) + data


class Inbox:
    """
    The received messages of a call, for one reader.

    An inbox holds at most `MAX_PENDING` bytes of complete messages, one incomplete
    message, and in addition the bytes that the window permits.
    """

    def __init__(self) -> None:
        self.stream: IStream | None = None
        self._buffer = MessageBuffer(_LENGTH.size, _length_of)
        self._messages: deque[bytes] = deque()
        self._pending = 0
        self._paused = False
        self._waiter: Deferred[None] | None = None
        self._ended = False
        self._error: CallError | None = None

    def feed(self, data: bytes) -> None:
        """
        Add bytes from the peer; bytes after the end of the call are dropped.

        :raises CallError: if a message is too large.
        """
        if self._ended:
            return
        for _, message in self._buffer.feed(data):
            self._messages.append(message)
            self._pending += len(message) + OVERHEAD
        if self._pending > MAX_PENDING and not self._paused and self.stream:
            self._paused = True
            self.stream.pauseProducing()
        if self._messages:
            self._wake()

    def end(self, error: CallError | None = None) -> None:
        """
        Record that no more data follows.

        If the call has not failed, messages that arrived are read before its end.
        """
        if not self._ended:
            self._ended, self._error = True, error
            if self._buffer and error is None:
                self._error = CallError(
                    Status.INTERNAL, "the stream ended within a message"
                )
            self._wake()

    def close(self) -> None:
        """Drop everything, because the call is over."""
        self._ended = True
        self._buffer.clear()
        self._messages.clear()

    async def next(self) -> bytes | None:
        """
        Return the next message; None after the last message.

        :raises CallError: the call failed.
        """
        while not self._messages:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return None
            if self._waiter is not None:
                raise RuntimeError(
                    "another reader is already waiting for these messages"
                )
            self._waiter = Deferred()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._messages.popleft()
        self._pending -= len(message) + OVERHEAD
        if self._paused and self._pending <= MAX_PENDING // 2 and self.stream:
            self._paused = False
            self.stream.resumeProducing()
        return message

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)


@implementer(IPushProducer)
class Outlet:
    """A sender of messages on a stream, which waits while the stream is full."""

    def __init__(self, stream: IStream) -> None:
        self._stream = stream
        self._waiter: Deferred[None] | None = None
        self._paused = False
        #: Whether the stream is closed.
        self.closed = False
        stream.registerProducer(self, True)

    async def send(self, message: Message) -> None:
        """
        Send one message when there is room.

        :raises CallError: the call is over.
        """
        while self._paused and not self.closed:
            if self._waiter is not None:
                raise RuntimeError("another send on this call is waiting")
            self._waiter = Deferred()
            await self._waiter
        if self.closed:
            raise CallError(Status.CANCELLED, "the call is over")
        self._stream.write(encode_message(message))

    def pauseProducing(self) -> None:
        """Stop writing: the stream is full."""
        self._paused = True

    def resumeProducing(self) -> None:
        """Resume writing: the stream accepts data again."""
        self._paused = False
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    def stopProducing(self) -> None:
        """Wake up and stop a waiting sender, because the stream is closed."""
        self.closed = True
        self.resumeProducing()
