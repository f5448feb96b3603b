"""Messages with flags and a length before each, as both protocols have them."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kas.api.calls import Codec, Exchange, Headers
from kas.api.held import Held
from tunnel.errors import CallError, Status
from tunnel.rpc.messages import MAX_MESSAGE

__all__ = ["COMPRESSED", "EnvelopeCodec", "Envelopes", "envelope"]

#: The flag of a message that is compressed, in both protocols.
COMPRESSED = 0x1

#: What comes before a message on the wire: flags, and its length.
_ENVELOPE = struct.Struct(">BI")


class Envelopes:
    """
    Cuts messages out of a body: flags and length before each, as both protocols do it.

    Holds at most one message that is not whole.
    """

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """
        Flags and content of each message that is whole now.

        :raises CallError: one is too large; said as soon as its length is here.
        """
        buffer = self._buffer
        buffer += data
        found = []
        start = 0
        while len(buffer) - start >= _ENVELOPE.size:
            flags, length = _ENVELOPE.unpack_from(buffer, start)
            if length > self._limit:
                raise CallError(
                    Status.RESOURCE_EXHAUSTED,
                    f"a message of {length} bytes; at most {self._limit} are taken",
                )
            stop = start + _ENVELOPE.size + length
            if stop > len(buffer):
                break
            found.append((flags, bytes(buffer[start + _ENVELOPE.size : stop])))
            start = stop
        # Once: there may be thousands of messages in it.
        del buffer[:start]
        return found

    @property
    def waiting(self) -> int:
        """Bytes that are left, of a message that is not whole."""
        return len(self._buffer)

    def clear(self) -> None:
        """Forget them."""
        self._buffer.clear()


def envelope(message: bytes, flags: int = 0) -> bytes:
    """One message as it goes into a body."""
    return _ENVELOPE.pack(flags, len(message)) + message


class EnvelopeCodec(Codec):
    """
    A call with messages in envelopes, both ways; the HTTP status is always 200.

    :ivar unreadable: what the call ends with when its body makes no sense.
    """

    unreadable: Status

    def __init__(
        self, exchange: Exchange, held: Held, headers: Mapping[str, str]
    ) -> None:
        super().__init__(exchange, held, headers)
        self._envelopes = Envelopes(self.limit)
        self._begun = False

    def body(self, data: bytes) -> None:
        """Requests, or parts of them."""
        if self.ended:
            return
        try:
            found = self._envelopes.feed(data)
            self.holder.hold(self._envelopes.waiting)
            for flags, _ in found:
                if flags:
                    raise self.not_plain(flags)
            self.request(*[self.decode(message) for _, message in found])
        except CallError as error:
            self.refuse(error)

    def body_ended(self) -> None:
        """The last request is here."""
        if self._envelopes.waiting:
            self.refuse(CallError(self.unreadable, "cut within a message"))
        self.requests_ended()

    def drop(self) -> None:
        """Forget what is not whole."""
        self._envelopes.clear()

    def not_plain(self, flags: int) -> CallError:
        """Why a message with such *flags* is not taken."""
        message = "a message with flags that mean nothing here"
        return CallError(self.unreadable, message)

    def respond(self, message: bytes) -> None:
        """Send one message."""
        data = self.encode(message)
        self._begin()
        self.exchange.write(envelope(data))

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.exchange.start(200, self._head())

    def _head(self) -> Headers:
        """Headers of the answer."""
        raise NotImplementedError
