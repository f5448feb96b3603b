"""
Certificates of the admission webhook, which sign themselves, and their rotation.

The API server accepts each certificate in the registration of the webhook.  A new
certificate is there for an hour before a replica of agentk presents it, and the old one
stays there until the next rotation.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from tunnel.errors import ConfigurationError

__all__ = ["LIFE", "OVERLAP", "Certificates", "Identified", "issue"]

#: Validity of a certificate, the time before its end at which the next one is created,
#: and the time between the creation of a certificate and its first use.
LIFE: Final = timedelta(days=90)
RENEW_BEFORE: Final = timedelta(days=30)
OVERLAP: Final = timedelta(hours=1)

#: Time between the start of the validity and the creation, because clocks differ.
_BACKDATED: Final = timedelta(hours=1)


@attrs.frozen
class Identified:
    """
    A certificate with its key.

    :ivar certificate: in PEM.
    :ivar key: in PEM.
    :ivar created: when it was created.
    :ivar names: the names that it is for.
    """

    certificate: bytes
    key: bytes = attrs.field(repr=False)
    created: datetime
    names: tuple[str, ...]


@attrs.frozen
class Certificates:
    """
    The certificates of one webhook.

    :ivar current: the certificate that agentk presents; None if none exists yet.
    :ivar following: the next one, which is not in use yet.
    :ivar previous: the certificate (in PEM) that was in use before; empty if none was.
    """

    current: Identified | None = None
    following: Identified | None = None
    previous: bytes = b""

    @property
    def accepted(self) -> bytes:
        """The certificates that the API server accepts."""
        found = [one.certificate for one in (self.current, self.following) if one]
        return b"".join((*found, self.previous))

    def rotated(self, names: Collection[str], now: datetime) -> Certificates:
        """
        Return the certificates that are due now: the same object if nothing is due.

        :param names: host names and addresses of the listener; if they change, a new
            certificate replaces the current one at once, as for one that has expired.
        :raises ConfigurationError: the package cryptography is missing.
        """
        current, following = self.current, self.following
        is_usable = current is not None and (
            current.names == tuple(names) and now < current.created + LIFE
        )
        if current is None or not is_usable:
            return Certificates(issue(names, now))
        if following is not None and following.names == tuple(names):
            if now >= following.created + OVERLAP:
                return Certificates(following, None, current.certificate)
        elif now >= current.created + LIFE - RENEW_BEFORE:
            return attrs.evolve(self, following=issue(names, now))
        return self


def issue(names: Collection[str], now: datetime) -> Identified:
    """
    Create a key and a certificate for *names*.

    :raises ConfigurationError: the package cryptography is missing.
    """
    # Imported here: agentk needs this package for its policy only.
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        text = "policy.admission needs the package cryptography; install txkas[policy]"
        raise ConfigurationError([text]) from None

    now = now.astimezone(UTC).replace(microsecond=0)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, "agentk admission webhook")]
    )
    alternatives: list[x509.GeneralName] = []
    for one in names:
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(one)))
        except ValueError:
            alternatives.append(x509.DNSName(one))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return Identified(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        now,
        tuple(names),
    )
