"""What agentk says when something else than kas answers, or not as it should."""

from __future__ import annotations

import pytest
from twisted.internet.error import ConnectionRefusedError, DNSLookupError
from twisted.internet.interfaces import INegotiated
from zope.interface import directlyProvides

from agentk.diagnosis import hint, why_ended
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.transport.tls import TLSHandshakeError, name_mismatch
from tunnel.transport.websocket import WebSocketError


class Secure:
    """A transport with TLS."""

    def __init__(self, protocol: bytes | None) -> None:
        self.negotiatedProtocol = protocol
        directlyProvides(self, INegotiated)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (TLSHandshakeError("not-tls", "x"), "the port for agents (8150"),
        (TLSHandshakeError("not-tls", "x"), "does it use TLS?"),
        (TLSHandshakeError("timeout", "x"), "does it use TLS?"),
        (TLSHandshakeError("closed", "x"), "does it use TLS?"),
        (TLSHandshakeError("untrusted", "x"), "--ca-cert-file"),
        (
            name_mismatch("192.0.2.2", ["localhost", "127.0.0.1", "::1", "vm"]),
            "; add '192.0.2.2' to development_certificate_names of kas, or pass "
            "--kas-tls-server-name vm",
        ),
        (name_mismatch("h", ["localhost"]), "--kas-tls-server-name localhost"),
        (WebSocketError("status", "x"), "the port for agents (8150"),
        (WebSocketError("not-http", "x"), "the port for agents (8150"),
        (ConnectionRefusedError(), "; is kas running there, and is this the port for"),
        (DNSLookupError(), "; is its host name correct?"),
    ],
)
def test_hint(error: Exception, says: str) -> None:
    assert says in hint(error)


@pytest.mark.parametrize(
    "error",
    [
        TLSHandshakeError("name-mismatch", "x"),
        OSError("x"),
        WebSocketError("timeout", ""),
    ],
)
def test_no_hint(error: Exception) -> None:
    """Where the error itself says all."""
    assert hint(error) == ""


@pytest.mark.parametrize(
    ("transport", "says"),
    [
        (object(), "write tls://"),
        (Secure(None), "8154 is for kubectl"),
        (Secure(b"http/1.1"), "8154 is for kubectl"),
        (Secure(b"txkas/1"), "its log may contain the reason"),
    ],
)
def test_what_answered(transport: object, says: str) -> None:
    spoke = SessionClosed(ErrorCode.PROTOCOL, "no frame")
    assert says in why_ended(spoke, "$AGENTK_TOKEN", transport)


def test_what_answered_is_known() -> None:
    """Kas said something, or welcomed us before."""
    cut = SessionClosed(ErrorCode.NONE, "cut")
    assert why_ended(cut, "/token", None).endswith("ended: cut")
    refused = SessionClosed(ErrorCode.UNAUTHENTICATED, "no")
    said = "kas does not accept the token in /token: no"
    assert why_ended(refused, "/token", object()) == said
    assert why_ended(refused, "/token", None) == said
