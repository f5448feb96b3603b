"""Why no TLS connection came about: OpenSSL's errors in words that help."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from tunnel.transport.negotiation import NegotiationError

__all__ = ["LABELS", "SHOWN_NAMES", "TLSHandshakeError", "describe", "name_mismatch"]

#: Of `TLSHandshakeError`.
LABELS = (
    "alert",
    "client-certificate",
    "closed",
    "expired",
    "flood",
    "internal",
    "name-mismatch",
    "not-tls",
    "other",
    "timeout",
    "untrusted",
    "version",
)

#: OpenSSL's verification results: X509_V_ERR_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH
_WRONG_NAME = frozenset({62, 64})
#: X509_V_ERR_CERT_NOT_YET_VALID, _CERT_HAS_EXPIRED
_WRONG_TIME = frozenset({9, 10})
_NOT_TLS = frozenset(
    {
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNKNOWN_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)
_WRONG_VERSION = frozenset(
    {
        "NO_PROTOCOLS_AVAILABLE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSUPPORTED_PROTOCOL",
        "VERSION_TOO_LOW",
    }
)


class TLSHandshakeError(NegotiationError):
    """
    No TLS connection came about; the message says what to look at.

    Its label is one of `LABELS`.
    """

    layer = "TLS"
    #: With ``name-mismatch``, where they are known: what the certificate is for.
    names: tuple[str, ...] = ()
    #: ... and what it had to be for.
    wanted: str = ""


#: Names of a certificate that an error shows.
SHOWN_NAMES = 10


def name_mismatch(wanted: str, names: Sequence[str]) -> TLSHandshakeError:
    """The certificate is trusted, and for other names than the one that is needed."""
    clean = [name for name in names if name.isprintable()]
    shown = ", ".join(clean[:SHOWN_NAMES]) or "no name at all"
    if len(clean) > SHOWN_NAMES:
        shown += f" and {len(clean) - SHOWN_NAMES} more"
    error = TLSHandshakeError(
        "name-mismatch", f"the certificate there is for {shown}, and not for {wanted!r}"
    )
    error.names = tuple(clean)
    error.wanted = wanted
    return error


def describe(error: ssl.SSLError, server_hostname: str | None) -> tuple[str, str]:
    """Turn OpenSSL's *error* into a label and a sentence that helps."""
    if isinstance(error, ssl.SSLCertVerificationError):
        detail = error.verify_message
        if error.verify_code in _WRONG_NAME:
            return (
                "name-mismatch",
                f"the peer's certificate is not for {server_hostname!r}: {detail}",
            )
        if error.verify_code in _WRONG_TIME:
            return (
                "expired",
                f"the peer's certificate is not valid now ({detail}); "
                "is the clock right?",
            )
        return (
            "untrusted",
            f"the peer's certificate is not trusted ({detail}); "
            "is the right CA certificate configured?",
        )
    reason = error.reason or ""
    words = reason.lower().replace("_", " ") or str(error)
    if reason in _NOT_TLS:
        return "not-tls", f"the peer does not speak TLS here ({words})"
    if reason in _WRONG_VERSION:
        return "version", f"no version of TLS in common with the peer ({words})"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "client-certificate", "the peer sent no client certificate"
    if "ALERT" in reason:
        return "alert", f"the peer ended the handshake: {words}"
    return "other", words
