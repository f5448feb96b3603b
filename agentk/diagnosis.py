"""Explanations of a missing connection to kas, for operators of agentk."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionRefusedError, DNSLookupError
from twisted.internet.interfaces import INegotiated

from tunnel.errors import ErrorCode, SessionClosed
from tunnel.transport.tls import ALPN_TUNNEL, TLSHandshakeError

__all__ = ["hint", "why_ended"]

#: Codes at the end of sessions whose server does not use the tunnel's protocol.
_SPEECHLESS = frozenset(
    {ErrorCode.NONE, ErrorCode.PROTOCOL, ErrorCode.FRAME_SIZE, ErrorCode.DEAD_PEER}
)

# Layers and labels of the `NegotiationError` that a server without TLS causes.
_NO_TLS = frozenset({("TLS", "not-tls"), ("TLS", "closed"), ("TLS", "timeout")})
_NO_WEBSOCKET = frozenset(
    {("WebSocket", "status"), ("WebSocket", "upgrade"), ("WebSocket", "not-http")}
)

#: Names in every certificate that kas creates, which do not identify a kas.
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})

_IS_IT_THE_PORT = (
    "is this the port for agents (8150; 8154 is for kubectl, and 8151 for probes)"
)


def hint(error: object) -> str:
    """
    Return a hint about the likely cause of a failed connection, to append to its error;
    empty if no cause is likely.
    """
    kind = (getattr(error, "layer", ""), getattr(error, "label", ""))
    if isinstance(error, TLSHandshakeError) and error.names:
        named = [name for name in error.names if name not in _LOCAL]
        usable = (named or error.names)[0]
        return (
            f"; add {error.wanted!r} to development_certificate_names of kas, or pass "
            f"--kas-tls-server-name {usable}"
        )
    if kind == ("TLS", "untrusted"):
        return (
            "; if kas created its certificate, pass ca.crt of its state directory "
            "with --ca-cert-file"
        )
    if isinstance(error, ConnectionRefusedError):
        return f"; is kas running there, and {_IS_IT_THE_PORT}?"
    if isinstance(error, DNSLookupError):
        return "; is its host name correct?"
    if kind in _NO_TLS:
        return f"; {_IS_IT_THE_PORT}, and does it use TLS?"
    if kind in _NO_WEBSOCKET:
        return f"; {_IS_IT_THE_PORT}, or the path of a proxy to it?"
    return ""


def why_ended(reason: SessionClosed, token: str, greeted: Any) -> str:
    """
    Explain why a connection ended.

    :param token: the source of the token: a file or a variable.
    :param greeted: the transport of the connection if it ended before WELCOME;
        otherwise None.
    """
    if greeted is not None and reason.code in _SPEECHLESS:
        return f"{_explain(reason, token)}; {_what_answered(greeted)}"
    return _explain(reason, token)


def _explain(reason: SessionClosed, token: str) -> str:
    if reason.code is ErrorCode.UNAUTHENTICATED:
        return f"kas does not accept the token in {token}: {reason}"
    if reason.code is ErrorCode.VERSION:
        return f"kas uses another version of the protocol: {reason}"
    if reason.code is ErrorCode.SUPERSEDED:
        return f"another agentk replaced this one at kas: {reason}"
    return f"the connection to kas ended: {reason}"


def _what_answered(transport: Any) -> str:
    """Guess which kind of server ended a connection without a frame of our protocol."""
    if not INegotiated.providedBy(transport):
        return (
            f"{_IS_IT_THE_PORT}, and is it a port without TLS?  Otherwise write tls://"
        )
    if transport.negotiatedProtocol == ALPN_TUNNEL.encode():
        return "the server knows the protocol; its log may contain the reason"
    return f"the server uses TLS, but not as kas does for agents: {_IS_IT_THE_PORT}?"
