"""Conversion of HTTP requests to calls: protocol, token, method."""

from __future__ import annotations

from functools import partial

import attrs
from google.protobuf.descriptor import MethodDescriptor
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IAddress

from kas.api import connect
from kas.api.auth import Authenticator, EveryCaller
from kas.api.connect import CONTENT_TYPES, StreamingCall, UnaryCall
from kas.api.own_services import CHECK
from kas.api.services import ExternalServices
from kas.identity.sign_ins import SignIns
from tunnel.api import CLIENT_ADDRESS, SpanKind
from tunnel.errors import CallError, Status
from tunnel.grpc import fields as grpc
from tunnel.grpc.fields import Headers, media_type, metadata_from
from tunnel.grpc.memory import RequestMemory
from tunnel.grpc.server import CallTransport, Codec, GrpcCall
from tunnel.toolkit.failure_log import FailureLog
from tunnel.toolkit.traces import (
    TRACEPARENT,
    new_trace_id,
    new_traceparent,
    trace_id_of,
)

__all__ = ["Front"]

#: Statuses of errors that kas causes, and not a client of the external API.
_OURS = frozenset(
    (
        Status.UNKNOWN,
        Status.DEADLINE_EXCEEDED,
        Status.INTERNAL,
        Status.UNAVAILABLE,
        Status.DATA_LOSS,
    )
)

#: Maximum characters of a client's ``User-Agent`` in the audit log.
MAX_PROGRAM = 256

#: Maximum characters of the issuer of a token in the audit log.
MAX_ISSUER = 100

#: Maximum characters of a path that an error repeats.
SHOWN = 200


@attrs.frozen
class _Caller:
    """Client of a call, as `tunnel.api.HasPeer`."""

    host: str
    program: str

    @property
    def peer_address(self) -> IAddress:
        """The address of the client; its port is not known."""
        return IPv4Address("TCP", self.host, 0)


@attrs.frozen
class Begun:
    """Outcome of `Front.begin` for a request."""

    #: None if kas already sent the response.
    call: Codec | None
    #: Whether the request has a valid token.
    authenticated: bool


@attrs.frozen
class Front:
    """Converter of HTTP requests to calls, for both versions of HTTP."""

    services: ExternalServices
    authenticator: Authenticator | EveryCaller
    failures: FailureLog
    memory: RequestMemory = attrs.Factory(RequestMemory)
    #: Records the callers; None without an audit log, and for a socket without tokens.
    sign_ins: SignIns | None = None

    def begin(
        self,
        exchange: CallTransport,
        method: str,
        path: str,
        headers: Headers,
        http2: bool,
        client: str = "",
    ) -> Begun:
        """
        Begin the requested call, or refuse the request.

        The token is checked before any step that would reveal which methods exist; only
        a health check needs no token.

        :param client: the client's address; empty if the client connected to a Unix
            socket.
        """
        fields = _fields(headers)
        traceparent = fields.get(TRACEPARENT)
        trace_id = trace_id_of(traceparent)
        if traceparent is None or trace_id is None:
            trace_id = new_trace_id()
            traceparent = new_traceparent(trace_id)
        if method != "POST":
            _turn_away(exchange, 405, "calls are made with POST", (b"allow", b"POST"))
            return Begun(None, False)
        call = _codec(exchange, self.memory, fields, http2)
        if call is None:
            _not_taken(exchange, ", ".join(CONTENT_TYPES).encode())
            return Begun(None, False)
        call.error_for_client = partial(self._error_for_client, path[:SHOWN], trace_id)
        authenticated = False
        try:
            authorization = fields.get("authorization")
            if path != CHECK or authorization is not None:
                self._check(authorization, fields, client)
                authenticated = True
            found = self._method(path)
            timeout = _timeout(call, fields)
            if isinstance(call, UnaryCall | StreamingCall):
                streams = found.client_streaming or found.server_streaming
                if call.unary == streams:
                    _not_taken(exchange, _accepted(streams))
                    return Begun(None, authenticated)
                if found.client_streaming and found.server_streaming and not http2:
                    _turn_away(exchange, 505, "bidirectional streams need HTTP/2")
                    return Begun(None, True)
                call.check_encoding()
                call.method = found
        except CallError as error:
            call.refuse(error)
            return Begun(None, authenticated)
        if self.services.tracer is not None:
            sent = fields.get(TRACEPARENT)
            span = self.services.tracer.begin(path[1:], SpanKind.SERVER, sent)
            if span is not None:
                call.span = span
                traceparent = span.traceparent
                trace_id = trace_id_of(traceparent) or trace_id
                call.error_for_client = partial(
                    self._error_for_client, path[:SHOWN], trace_id
                )
        metadata = {
            **metadata_from(headers),
            TRACEPARENT: traceparent,
            CLIENT_ADDRESS: client,
        }
        call.open(self.services, path, metadata, timeout)
        return Begun(call, authenticated)

    def _check(
        self, authorization: str | None, fields: dict[str, str], client: str
    ) -> None:
        """Check the token of a call, and record a sign-in."""
        if self.sign_ins is None:
            self.authenticator.check(authorization)
            return
        caller = _Caller(client, fields.get("user-agent", "")[:MAX_PROGRAM])
        try:
            issuer = self.authenticator.check(authorization)
        except CallError as error:
            if authorization:
                token = authorization.encode("utf-8", "surrogateescape")
                self.sign_ins.refused("api", error, token, caller)
            raise
        self.sign_ins.accepted("api", f"api:{issuer[:MAX_ISSUER]}", caller)

    def _error_for_client(
        self, path: str, trace_id: str, error: CallError
    ) -> CallError:
        ours = error.status in _OURS
        text = self.failures.report(
            error.message,
            trace_id,
            ours=ours,
            status=error.status.name,
            method=path,
        )
        return CallError(error.status, text, error.details)

    def _method(self, path: str) -> MethodDescriptor:
        found = self.services.method(path)
        if found is None:
            raise CallError(Status.UNIMPLEMENTED, f"{path[:SHOWN]} is not served here")
        return found


def _not_taken(exchange: CallTransport, accepted: bytes) -> None:
    text = f"use one of these as Content-Type: {accepted.decode()}"
    _turn_away(exchange, 415, text, (b"accept-post", accepted))


def _turn_away(
    exchange: CallTransport, status: int, text: str, *headers: tuple[bytes, bytes]
) -> None:
    """
    Respond with a text to a request that is not a call, and therefore has no codec.
    """
    body = text.encode() + b"\n"
    kind = (b"content-type", b"text/plain; charset=utf-8")
    length = (b"content-length", b"%d" % len(body))
    exchange.start(status, [*headers, kind, length])
    exchange.write(body)
    exchange.end()


def _fields(headers: Headers) -> dict[str, str]:
    fields: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        fields[name] = f"{fields[name]},{value}" if name in fields else value
    return fields


def _codec(
    exchange: CallTransport, memory: RequestMemory, fields: dict[str, str], http2: bool
) -> Codec | None:
    kind = media_type(fields)
    if http2 and kind in grpc.CONTENT_TYPES:
        return GrpcCall(exchange, memory, fields)
    rest = fields.get("content-type", "").partition(";")[2]
    charset = rest.replace(" ", "").replace('"', "").lower()
    if kind not in CONTENT_TYPES or charset not in ("", "charset=utf-8"):
        return None
    if "connect+" in kind:
        return StreamingCall(exchange, memory, fields)
    return UnaryCall(exchange, memory, fields)


def _timeout(call: Codec, fields: dict[str, str]) -> float | None:
    if isinstance(call, GrpcCall):
        return grpc.parse_timeout(fields.get("grpc-timeout"))
    return connect.parse_timeout(fields.get("connect-timeout-ms"))


def _accepted(streams: bool) -> bytes:
    kinds = [kind for kind in CONTENT_TYPES if ("connect+" in kind) == streams]
    return ", ".join(kinds).encode("ascii")
