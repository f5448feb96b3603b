"""Certificates for tests: one CA, and what it signs, as PEM files in a directory."""

from __future__ import annotations

import datetime
import functools
import ipaddress
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@attrs.frozen
class Identity:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def certificate_der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def key_pem(self, password: bytes | None = None) -> bytes:
        encryption: serialization.KeySerializationEncryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password)
        )
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )

    def write(self, directory: Path, name: str) -> tuple[str, str]:
        """Write both as files; returns the paths of certificate and key."""
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate_pem)
        key.write_bytes(self.key_pem())
        key.chmod(0o600)
        return str(certificate), str(key)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    """A CA that signs at will."""

    def __init__(self, name: str = "test CA") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 365 * _DAY)
            .add_extension(x509.BasicConstraints(True, None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.identity = Identity(certificate, key)

    @property
    def pem(self) -> str:
        return self.identity.certificate_pem.decode("ascii")

    def write(self, directory: Path, name: str = "ca.crt") -> str:
        path = directory / name
        path.write_bytes(self.identity.certificate_pem)
        return str(path)

    def issue(
        self,
        *names: str,
        expired: bool = False,
        end: datetime.datetime | None = None,
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> Identity:
        """Sign a certificate for *names* (DNS names and addresses)."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        end = end or (now - _DAY if expired else now + 30 * _DAY)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(names[0]))
            .issuer_name(self.identity.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * _DAY)
            .not_valid_after(end)
            .add_extension(
                x509.SubjectAlternativeName([_alternative(name) for name in names]),
                critical=False,
            )
            .sign(self.identity.key, hashes.SHA256())
        )
        return Identity(certificate, key)


@functools.cache
def authority() -> Authority:
    """The CA of this test run."""
    return Authority()


@functools.cache
def other_authority() -> Authority:
    """A CA that nobody was told about."""
    return Authority("other CA")


@functools.cache
def server_identity() -> Identity:
    """For ``localhost``, ``kas.example`` and 127.0.0.1."""
    return authority().issue("localhost", "kas.example", "127.0.0.1")


@functools.cache
def client_identity() -> Identity:
    return authority().issue("agent.example")
