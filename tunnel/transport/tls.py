"""
The policy of all TLS connections: verification on each side, and the texts of refusals.

The contexts are the standard library's, for `tunnel.transport.tlsio`. TLS 1.3 is the
minimum unless a caller permits 1.2, for ports that other software connects to. The
contexts disable renegotiation and session tickets: a full handshake costs 0.3 ms of
CPU, and tickets would need keys that need rotation.
"""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tunnel.errors import ConfigurationError
from tunnel.toolkit.files import FileVersion, WatchedFile, file_version
from tunnel.transport.negotiation import NegotiationError

__all__ = [
    "ALPN_HTTP",
    "ALPN_TUNNEL",
    "CHECK_INTERVAL",
    "HANDSHAKE_LABELS",
    "SHOWN_NAMES",
    "CertificateFiles",
    "ReloadingServerContext",
    "TLSHandshakeError",
    "certificate_pin",
    "certificate_validity",
    "client_context",
    "describe_error",
    "identity_files",
    "name_mismatch",
]

#: Name of the tunnel in ALPN.  A peer that does not offer it is not refused.
ALPN_TUNNEL = "txkas/1"
#: ALPN name to offer if a WebSocket or HTTP follows: some proxies refuse unknown names,
#: and would choose HTTP/2 if nothing was offered.
ALPN_HTTP = "http/1.1"

#: Seconds between two checks of the files, however many connections arrive.
CHECK_INTERVAL = 1.0

#: Ciphers for TLS 1.2: only forward secrecy and authenticated encryption.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

#: Maximum number of names of a certificate in an error text.
SHOWN_NAMES = 10

#: The labels of `TLSHandshakeError`.
HANDSHAKE_LABELS = (
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


@attrs.frozen
class CertificateFiles:
    """
    The PEM files of a server, and the CAs of clients that must have a certificate.
    """

    cert_file: str
    key_file: str
    #: The CAs of client certificates. If None, clients need no certificate.
    client_ca_file: str | None = None
    require_client_cert: bool = False

    def version(self) -> tuple[FileVersion, ...]:
        """
        Return a value that changes when a file or the target of its symbolic links
        changes.
        """
        return tuple(
            file_version(path)
            for path in (self.cert_file, self.key_file, self.client_ca_file)
            if path is not None
        )

    def load(self, alpn: Sequence[str], minimum: ssl.TLSVersion) -> ssl.SSLContext:
        """
        Create a context from the present files.

        :raises ConfigurationError: a file is invalid; the text names it.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _harden(context, alpn, minimum)
        context.num_tickets = 0
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        _load_identity(context, self.cert_file, self.key_file)
        if self.client_ca_file is not None:
            _load_authorities(context, self.client_ca_file)
            context.verify_mode = (
                ssl.CERT_REQUIRED if self.require_client_cert else ssl.CERT_OPTIONAL
            )
        elif self.require_client_cert:
            _fail(
                self.cert_file,
                "client certificates are required, but no file contains their CAs: "
                "name the CA of the clients",
            )
        return context


class ReloadingServerContext:
    """
    The server's context for the next connection, created again after a file has
    changed.

    If files become invalid (incomplete, broken link, wrong key), the last valid context
    stays in use and the problem is logged once; the files are tried again after the
    next change.  Only the first load raises an exception.
    """

    _log = Logger()

    def __init__(
        self,
        cert_file: str,
        key_file: str,
        client_ca_file: str | None = None,
        *,
        clock: IReactorTime,
        require_client_cert: bool = False,
        alpn: Sequence[str] = (ALPN_TUNNEL,),
        minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> None:
        self.files = CertificateFiles(
            cert_file, key_file, client_ca_file, require_client_cert
        )
        self._alpn = tuple(alpn)
        self._minimum_version = minimum_version
        self._context = WatchedFile(
            self.files.version,
            self._load,
            self._refused,
            unusable=ConfigurationError,
            seconds=clock.seconds,
            interval=CHECK_INTERVAL,
            changed=self._changed,
        )

    def __call__(self) -> ssl.SSLContext:
        return self._context.get()

    def _load(self) -> ssl.SSLContext:
        context = self.files.load(self._alpn, self._minimum_version)
        #: The expiry of the present certificate, as a time of day.
        self.expires = certificate_validity(_read(self.files.cert_file))[1]
        return context

    def _changed(self) -> None:
        self._log.info("TLS certificate {path} loaded", path=self.files.cert_file)

    def _refused(self, error: Exception) -> None:
        self._log.error(
            "the new TLS files are invalid; the previous ones stay in use: {reason}",
            reason=str(error),
        )


def client_context(
    ca_file: str | None = None,
    ca_data: str | bytes | None = None,
    *,
    insecure: bool = False,
    any_name: bool = False,
    identity: tuple[str, str] | None = None,
    alpn: Sequence[str] = (ALPN_TUNNEL,),
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    system_pool: bool = True,
) -> ssl.SSLContext:
    """
    Create a context for connecting.

    :param ca_file: PEM file of CAs to trust in addition to the system's.
    :param ca_data: the same CAs as text (PEM) or bytes (PEM or DER).
    :param insecure: whether to verify nothing.
    :param any_name: whether to verify the issuer of the certificate but not its name:
        only for inspecting a certificate, never for sending data.
    :param identity: our certificate and key, for servers that require a certificate;
        see `identity_files`.
    :param system_pool: whether to trust the system's CAs, too; False in a kubeconfig.
    :raises ConfigurationError: a file is invalid; the error names it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context, alpn, minimum_version)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        if system_pool:
            context.load_default_certs()
        if ca_file is not None:
            _load_authorities(context, ca_file)
        if ca_data is not None:
            if isinstance(ca_data, bytes) and b"-----BEGIN" in ca_data:
                ca_data = ca_data.decode("ascii", "replace")
            try:
                context.load_verify_locations(cadata=ca_data)
            except (ssl.SSLError, ValueError) as error:
                _fail("the given CA certificate", f"is not a certificate ({error})")
    if any_name:
        context.check_hostname = False
    if identity is not None:
        _load_identity(context, *identity)
    return context


def identity_files(
    certificate: str | Path | None, key: str | Path | None
) -> tuple[str, str] | None:
    """
    Return the paths of a certificate and its key, which may be in the same file; None
    without a certificate.
    """
    return None if certificate is None else (str(certificate), str(key or certificate))


def check_authorities(path: str) -> None:
    """
    Check that a file contains CA certificates.

    :raises ConfigurationError: if the file contains no certificate.
    """
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), path)


def check_identity(cert_file: str, key_file: str) -> None:
    """
    Check a certificate and its key.

    :raises ConfigurationError: if they do not belong together, or a file cannot be
        read; the text names the file.
    """
    _load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), cert_file, key_file)


class TLSHandshakeError(NegotiationError):
    """
    Raised if a TLS handshake failed; the message says what to check.

    Its label is one of `HANDSHAKE_LABELS`.
    """

    layer = "TLS"
    #: The names of the certificate, if they are known; only with label
    #: ``name-mismatch``.
    names: tuple[str, ...] = ()
    #: The name that the certificate should contain; only with label ``name-mismatch``.
    wanted: str = ""


def name_mismatch(wanted: str, names: Sequence[str]) -> TLSHandshakeError:
    """
    Return the error for a trusted certificate that is not valid for the needed name.
    """
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


def describe_error(error: ssl.SSLError, server_hostname: str | None) -> tuple[str, str]:
    """Convert OpenSSL's *error* to a label and a helpful sentence."""
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
        return "not-tls", f"the peer does not use TLS here ({words})"
    if reason in _WRONG_VERSION:
        return "version", f"no version of TLS in common with the peer ({words})"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "client-certificate", "the peer sent no client certificate"
    if "ALERT" in reason:
        return "alert", f"the peer ended the handshake: {words}"
    return "other", words


def certificate_pin(certificate: bytes | str) -> str:
    """
    Return the pin of the public key of *certificate* (DER or PEM), as for ``curl
    --pinnedpubkey``.

    The pin stays the same when a certificate is renewed with the same key.

    :raises ValueError: *certificate* is not a certificate.
    """
    der = _der(certificate)
    start = _member(der, _SUBJECT_PUBLIC_KEY_INFO)
    key = der[start : _der_content(der, start)[1]]
    return "sha256//" + base64.b64encode(hashlib.sha256(key).digest()).decode("ascii")


def certificate_validity(certificate: bytes | str) -> tuple[datetime, datetime]:
    """
    Return the validity of *certificate* (DER, or the first one in PEM): its start and
    end in UTC.

    :raises ValueError: *certificate* is not a certificate.
    """
    der = _der(certificate)
    start, _ = _der_content(der, _member(der, _VALIDITY))
    return _der_time(der, start), _der_time(der, _der_content(der, start)[1])


def _der(certificate: bytes | str) -> bytes:
    """Return the first certificate in PEM as DER; return other bytes unchanged."""
    if isinstance(certificate, str):
        certificate = certificate.encode("ascii", "replace")
    pem = re.search(
        rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----",
        certificate,
        re.DOTALL,
    )
    if pem is None:
        return certificate
    return base64.b64decode(b"".join(pem[1].split()), validate=True)


#: RFC 5280, 4.1: TBSCertificate is the first member of the certificate; after its
#: optional version (tagged [0]) follow serial number, algorithm, issuer, validity,
#: subject, and public key.
_VALIDITY = 3
_SUBJECT_PUBLIC_KEY_INFO = 5


def _member(der: bytes, number: int) -> int:
    """
    Return the offset of the member *number* of TBSCertificate, not counting the
    version.
    """
    start, _ = _der_content(der, 0)
    start, _ = _der_content(der, start)
    if der[start : start + 1] == b"\xa0":
        start = _der_content(der, start)[1]
    for _before in range(number):
        start = _der_content(der, start)[1]
    return start


def _der_time(der: bytes, start: int) -> datetime:
    """Parse a UTCTime (before 2050) or GeneralizedTime (RFC 5280, 4.1.2.5)."""
    content, end = _der_content(der, start)
    text = der[content:end].decode("ascii", "replace")
    if der[start] == 0x17:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif der[start] != 0x18:
        raise ValueError("not a certificate: it has no time where one is required")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _der_content(der: bytes, start: int) -> tuple[int, int]:
    """
    Return the offsets of the beginning and of the end of the content of the DER value
    at *start*.
    """
    if start + 2 > len(der):
        raise ValueError("not a certificate: it ends too early")
    length = der[start + 1]
    start += 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(der[start : start + count], "big")
        start += count
    if start + length > len(der):
        raise ValueError("not a certificate: it ends too early")
    return start, start + length


def _harden(
    context: ssl.SSLContext, alpn: Sequence[str], minimum: ssl.TLSVersion
) -> None:
    context.minimum_version = minimum
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers(_CIPHERS)
    if alpn:
        context.set_alpn_protocols(list(alpn))


def _load_identity(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    if b"-----BEGIN CERTIFICATE-----" not in _read(cert_file):
        _fail(cert_file, "it contains no certificate; it must be a PEM file with one")
    if b"PRIVATE KEY-----" not in _read(key_file):
        _fail(key_file, "it contains no private key; it must be a PEM file with one")

    def no_password() -> NoReturn:
        # Without this password callback, OpenSSL would ask at the terminal.
        _fail(key_file, "the key has a password: write it without one (mode 0600)")

    try:
        context.load_cert_chain(cert_file, key_file, no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            _fail(key_file, f"the key does not belong to the certificate {cert_file}")
        _fail(cert_file, f"the certificate or its key {key_file} is broken ({error})")
    except OSError as error:
        _fail(cert_file, f"cannot be read ({error.strerror})")


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _read(path)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        _fail(path, f"it contains no CA certificate: it must be PEM ({error})")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        _fail(path, f"cannot be read ({error.strerror}): check the path and its owner")


def _fail(what: str, problem: str) -> NoReturn:
    raise ConfigurationError([f"{what}: {problem}"])
