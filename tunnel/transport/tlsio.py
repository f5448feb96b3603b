"""
TLS for any Twisted protocol, with the standard library's ``ssl`` and memory buffers.

Twisted's own TLS uses pyOpenSSL, which raises two exceptions and allocates 32 KiB for
every received chunk.  Here a chunk costs one call per record, and no exception if it
ends with a record. Twisted 26.10's own TLS (pyOpenSSL 26.4) needs 2.5 times the CPU for
an echo of 200 B, on one connection and on 16, 1.5 times the CPU to send a GB, and 17.5
KiB for an idle connection instead of 13.2.

Each `write` ends in a system call, so callers should write large pieces.  Callers with
small frames should collect them and write once per turn of the reactor.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, NoReturn

import attrs
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IAddress,
    INegotiated,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    ISSLTransport,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from zope.interface import classImplements, implementer

from tunnel.transport import eager
from tunnel.transport.layer import CLOSE_TIMEOUT, Layer
from tunnel.transport.negotiation import (
    HANDSHAKE_TIMEOUT,
    LayerFactory,
    NegotiationError,
    connect_through,
    half_closeable,
)
from tunnel.transport.tls import TLSHandshakeError, describe_error, name_mismatch

__all__ = [
    "CLOSE_TIMEOUT",
    "HANDSHAKE_TIMEOUT",
    "MAX_HANDSHAKE_BYTES",
    "TLSClientEndpoint",
    "TLSConnection",
    "wrap_client",
    "wrap_server",
]

#: Maximum number of bytes that a peer may send before the handshake is complete.  The
#: largest real handshake, with a chain of client certificates, stays below 32 KiB; the
#: last read of the socket (64 KiB) may already contain data.
MAX_HANDSHAKE_BYTES: Final = 96 * 1024

#: Number of bytes that are passed to OpenSSL at once, because OpenSSL's buffers never
#: shrink during a connection.  Pieces of one record leave 23 KiB in a tunnel that was
#: busy, pieces of 64 KiB leave 78 KiB; small pieces cost 5 to 10 % of bulk throughput.
_SLICE: Final = 16 * 1024

#: Maximum number of bytes of plaintext in a record.
_RECORD: Final = 16 * 1024

_PLAIN_HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port speaks TLS: use https:// (or wss://, tls://).\n"
)


class TLSConnection(Layer):
    """
    One TLS connection, as protocol and as transport.

    Half-close works in both directions, by TLS's own ``close_notify``.  A protocol
    above that provides `IHalfCloseableProtocol` is notified when the peer has finished,
    and ``loseWriteConnection`` notifies the peer that our side has finished.  Any
    machine on the path can end the connection below without ``close_notify``; the
    protocol above then gets `ConnectionLost`, never `ConnectionDone`.
    """

    error_type: ClassVar = TLSHandshakeError
    _handshake_bytes = 0

    def __init__(
        self,
        factory: LayerFactory,
        address: IAddress,
        context: Callable[[], ssl.SSLContext],
        server_side: bool,
        server_hostname: str | None,
    ) -> None:
        super().__init__(factory, address)
        self._context = context
        self._server_side = server_side
        self._server_hostname = server_hostname
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._finish_write_later = False

    def begin(self) -> None:
        try:
            self._tls = self._context().wrap_bio(
                self._incoming,
                self._outgoing,
                server_side=self._server_side,
                server_hostname=self._server_hostname,
            )
        except Exception:
            self._log.failure("preparing a TLS connection failed")
            self.refuse("internal", "creating a TLS context failed; see the log")
            return
        self._shake_hands()

    def describe_timeout(self) -> str:
        return f"the TLS handshake took longer than {self._factory.timeout:g} s"

    def _shake_hands(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            if self._server_side and error.reason == "HTTP_REQUEST":
                self._outgoing.read()
                eager.write(self._lower, _PLAIN_HTTP_ANSWER)
            # Send the alert that contains the reason for the peer.
            self._flush()
            self.refuse(*describe_error(error, self._server_hostname))
            return
        self._flush()
        if self.open_above() and self._incoming.pending:
            self._decrypt(b"")

    # Towards the transport below

    def dataReceived(self, data: bytes) -> None:
        if self._lost or self._refusal is not None:
            return
        if self._above is None:
            self._handshake_bytes += len(data)
            if self._handshake_bytes > MAX_HANDSHAKE_BYTES:
                text = (
                    f"more than {MAX_HANDSHAKE_BYTES} bytes before the handshake ended"
                )
                self.refuse("flood", text)
                return
            self._incoming.write(data)
            self._shake_hands()
        else:
            self._decrypt(data)

    def _decrypt(self, data: bytes) -> None:
        """Pass on the content of the records that *data* completes, as one piece."""
        tls, incoming = self._tls, self._incoming
        if tls is None:
            return
        parts: list[bytes] = []
        ended = False
        error: Exception | None = None
        for piece in (data,) if len(data) <= _SLICE else _slices(data):
            incoming.write(piece)
            try:
                while part := tls.read(_RECORD):
                    parts.append(part)
                    # If nothing is left, reading would cost an exception.
                    if not incoming.pending and not tls.pending():
                        break
                else:
                    ended = True
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLZeroReturnError:
                ended = True
            except ssl.SSLError as ssl_error:
                error = ConnectionLost(f"TLS: {describe_error(ssl_error, None)[1]}")
            if ended or error is not None:
                break
        if self._outgoing.pending:
            # The output is the response to a key update, or an alert.
            self._flush()
        if parts or ended:
            self.hand_up(parts[0] if len(parts) == 1 else b"".join(parts), ended)
        if error is not None and not self._lost:
            self.fail(error)

    def explain_loss(self, reason: Failure) -> Failure:
        if reason.check(ConnectionDone):
            text = (
                "the connection ended without TLS close_notify: data may be truncated"
            )
            return Failure(ConnectionLost(text))
        return reason

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        # This object often exists for longer than its connection, but OpenSSL's memory
        # is not needed any more.
        self._tls = None

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            eager.write(self._lower, data)

    # Towards the protocol above

    def write(self, data: bytes) -> None:
        if not self._writable or not data:
            return
        assert self._tls is not None
        try:
            if len(data) <= _SLICE:
                self._tls.write(data)
                encrypted = self._outgoing.read()
            else:
                parts = []
                for piece in _slices(data):
                    self._tls.write(piece)
                    parts.append(self._outgoing.read())
                encrypted = b"".join(parts)
        except ssl.SSLError as error:
            self.fail(ConnectionLost(f"TLS: {describe_error(error, None)[1]}"))
            return
        eager.write(self._lower, encrypted)

    def say_goodbye(self) -> None:
        self._send_close_notify()
        self._lower.loseConnection()

    def loseWriteConnection(self) -> None:
        """Send ``close_notify``; data from the peer still arrives."""
        if not self._writable or self.disconnecting:
            return
        if self._producer is not None:
            self._finish_write_later = True
            return
        self._send_close_notify()
        if self._ended:
            # both directions have ended
            self.loseConnection()
        else:
            self._factory.clock.callLater(0, self._write_finished)

    def unregisterProducer(self) -> None:
        super().unregisterProducer()
        if self._finish_write_later:
            self._finish_write_later = False
            self.loseWriteConnection()

    def _write_finished(self) -> None:
        above = half_closeable(self._above)
        if above is not None:
            above.writeConnectionLost()

    def _send_close_notify(self) -> None:
        if not self._writable:
            return
        assert self._tls is not None
        self._writable = False
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            # OpenSSL wants to read: our close_notify is written, and the close_notify
            # of the peer has not arrived.  We do not wait for it.  After any other
            # error the peer is gone.
            pass
        self._flush()

    def peer_finished(self) -> None:
        above = half_closeable(self._above)
        if not self._writable and not self.disconnecting:
            # Our side had finished before.
            self.loseConnection()
        elif self.disconnecting or above is None:
            self.close_in_answer()
        else:
            above.readConnectionLost()

    def getPeerCertificate(self) -> bytes | None:
        """Return the peer's certificate (DER), if it was requested and sent."""
        if self._tls is None:
            return None
        return self._tls.getpeercert(binary_form=True)

    @property
    def authorities(self) -> list[bytes]:
        """The certificates (DER) of the CAs that the handshake accepted."""
        if self._tls is None:
            return []
        return self._tls.context.get_ca_certs(binary_form=True)

    @property
    def peer_names(self) -> tuple[str, ...]:
        """The host names and addresses in the peer's verified certificate."""
        found = None if self._tls is None else self._tls.getpeercert()
        names: Any = (found or {}).get("subjectAltName", ())
        return tuple(
            _as_people_write(name)
            for kind, name in names
            if kind in ("DNS", "IP Address")
        )

    @property
    def negotiated_alpn(self) -> str | None:
        """The protocol that was negotiated with ALPN."""
        return None if self._tls is None else self._tls.selected_alpn_protocol()

    @property
    def negotiatedProtocol(self) -> bytes | None:
        """
        Return the ALPN protocol as `INegotiated` does, which Twisted's own servers use.
        """
        name = self.negotiated_alpn
        return None if name is None else name.encode("ascii")


classImplements(TLSConnection, ISSLTransport, INegotiated)


def _slices(data: bytes) -> Iterator[memoryview]:
    """Yield pieces that keep OpenSSL's buffers small."""
    whole = memoryview(data)
    return (whole[start : start + _SLICE] for start in range(0, len(data), _SLICE))


def _as_people_write(name: str) -> str:
    """Shorten an IPv6 address, which OpenSSL writes in full."""
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name


def wrap_server(
    factory: IProtocolFactory,
    context: Callable[[], ssl.SSLContext],
    clock: IReactorTime,
    *,
    handshake_timeout: float = HANDSHAKE_TIMEOUT,
    failed: Callable[[NegotiationError], object] | None = None,
    room: Callable[[], int] | None = None,
) -> IProtocolFactory:
    """
    Return a factory for any listening endpoint that uses TLS under *factory*.

    :param context: called for each connection, so that certificates can change.
    :param failed: called for each connection whose handshake failed.
    :param room: returns how many connections may be in their handshake now; default
        `MAX_NEGOTIATING`.
    """

    def build(layer_factory: LayerFactory, address: IAddress) -> TLSConnection:
        return TLSConnection(layer_factory, address, context, True, None)

    layers = LayerFactory(factory, clock, handshake_timeout, build, failed=failed)
    if room is not None:
        layers.room = room
    return layers


def wrap_client(
    factory: IProtocolFactory,
    context: ssl.SSLContext,
    server_hostname: str,
    clock: IReactorTime,
    *,
    handshake_timeout: float = HANDSHAKE_TIMEOUT,
) -> LayerFactory:
    """
    Return a factory for any connecting endpoint that uses TLS under *factory*.

    The endpoint's own Deferred fires before the handshake; `TLSClientEndpoint` waits
    for the handshake, and reports why it failed.

    :param server_hostname: the name or address to verify and to send as SNI.
    """

    def build(layer_factory: LayerFactory, address: IAddress) -> TLSConnection:
        return TLSConnection(
            layer_factory, address, lambda: context, False, server_hostname or None
        )

    return LayerFactory(factory, clock, handshake_timeout, build)


@implementer(IStreamClientEndpoint)
@attrs.frozen(eq=False)
class TLSClientEndpoint:
    """
    An endpoint that connects with *endpoint* and uses TLS.

    ``connect`` fires after the handshake, and so after the verification of the server's
    certificate.  It fails with `TLSHandshakeError`, or with an error from *endpoint* or
    *context_source*.

    In TLS 1.3, a server checks a client's certificate after the client has finished the
    handshake: the refusal arrives as the loss of an established connection.

    :param context_source: called for each connection.
    :param any_name_source: creates contexts that verify the issuer of a certificate but
        not its name.  If this parameter is given and the name does not match, a second
        connection that sends no data reads the certificate, and the error lists its
        names.
    """

    endpoint: IStreamClientEndpoint
    context_source: Callable[[], ssl.SSLContext]
    server_hostname: str
    clock: IReactorTime
    handshake_timeout: float = HANDSHAKE_TIMEOUT
    any_name_source: Callable[[], ssl.SSLContext] | None = None

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        connecting = self._connect(protocolFactory, self.context_source)
        if self.any_name_source is not None:
            connecting.addErrback(self._explain, self.any_name_source)
        return connecting

    def _connect(
        self, above: IProtocolFactory, source: Callable[[], ssl.SSLContext]
    ) -> Deferred[IProtocol]:
        try:
            context = source()
        except Exception:
            return fail()
        factory = wrap_client(
            above,
            context,
            self.server_hostname,
            self.clock,
            handshake_timeout=self.handshake_timeout,
        )
        return connect_through(self.endpoint, factory)

    def _explain(
        self, failure: Failure, source: Callable[[], ssl.SSLContext]
    ) -> Deferred[NoReturn]:
        return Deferred.fromCoroutine(self._name_names(failure, source))

    async def _name_names(
        self, failure: Failure, source: Callable[[], ssl.SSLContext]
    ) -> NoReturn:
        """
        Add the names of the certificate to an error, because OpenSSL hides a
        certificate that it refused.
        """
        error = failure.value
        if not isinstance(error, TLSHandshakeError) or error.label != "name-mismatch":
            failure.raiseException()
        silent = Factory.forProtocol(Protocol)
        silent.noisy = False
        try:
            protocol: Any = await self._connect(silent, source)
        except CancelledError:
            raise
        except Exception:
            failure.raiseException()
        names = protocol.transport.peer_names
        protocol.transport.loseConnection()
        raise name_mismatch(self.server_hostname, names)
