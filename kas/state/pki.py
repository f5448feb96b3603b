"""
Development CA and certificate of a kas without configured certificates.

kas creates the CA and the certificate in the state directory on its first start, so
that TLS works before an operator has provided certificates: ``ca.crt``, ``ca.key``,
``server.crt``, ``server.key``. kas never replaces an operator's own files in that
directory, and renews only a certificate that this CA signed, with the same key, so that
pins stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kas.state.directory import StateDirectory
from tunnel.config.names import (
    as_address,
    canonical_name,
    is_certificate_name,
)
from tunnel.errors import ConfigurationError
from tunnel.transport.tls import certificate_pin

__all__ = [
    "MAX_NAMES",
    "DevelopmentPki",
    "ServerFiles",
    "certificate_pin",
    "ensure",
    "is_for",
    "names_of",
    "renewal_problem",
    "signed_by",
]

CA_CERTIFICATE = "ca.crt"
CA_KEY = "ca.key"
SERVER_CERTIFICATE = "server.crt"
SERVER_KEY = "server.key"

CA_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=90)
#: Time before the expiry of the CA at which kas begins to warn: from this time on,
#: certificates expire together with the CA, and every agent and kubeconfig needs the
#: next CA.
CA_NOTICE = SERVER_LIFE
# Time between the start of a certificate's validity and its creation, for agents whose
# clocks are slightly behind.
BACKDATED = timedelta(hours=1)

# Maximum number of names of one certificate: a handshake transmits all names.
MAX_NAMES = 100


@attrs.frozen
class ServerFiles:
    """Result of `DevelopmentPki.ensure`: the files of a certificate."""

    certificate_file: Path
    key_file: Path
    #: CA file for ``agentk --ca-cert-file``; None if the development CA did not sign
    #: the certificate.
    ca_file: Path | None
    #: Pin of the server's key, for ``curl --pinnedpubkey``.
    pin: str
    expires_at: datetime
    #: Time when `ensure` has to be called again; None for a certificate of another CA.
    renew_at: datetime | None
    #: Reason why the certificate will not be renewed, with the remedy; None if the
    #: certificate will be renewed, or is from another CA.
    problem: str | None = None


@attrs.frozen(eq=False)
class DevelopmentPki:
    """
    Creator of the development CA and certificate in a state directory, which also
    renews the certificate.

    :param hostname: the name of this machine, which becomes a name of the certificate.
    :param now: returns the time of day, with a time zone.
    :param names: further host names and addresses for the certificate.
    """

    state: StateDirectory
    hostname: str
    now: Callable[[], datetime]
    names: Sequence[str] = ()

    def ensure(self) -> ServerFiles:
        """
        Create or renew the certificate if necessary; call this once a day.

        :raises ConfigurationError: if files that belong together are incomplete.
        """
        with self.state.lock():
            certificate = self._certificate(SERVER_CERTIFICATE)
            if certificate is not None and self.state.read(SERVER_KEY) is None:
                raise self._missing(SERVER_KEY, SERVER_CERTIFICATE)
            authority = self._certificate(CA_CERTIFICATE)
            ours = (
                certificate is not None
                and authority is not None
                and signed_by(certificate, authority)
            )
            due = certificate is not None and ours and self._is_due(certificate)
            if certificate is None or due:
                if authority is None:
                    authority = self._make_authority()
                certificate = self._issue(authority, self._names())
                ours = True
            elif ours and authority is not None and self._lacks_names(certificate):
                # Keep the names of the certificate, because several kas may share the
                # directory, each with names of its own.  The next renewal drops names
                # that no kas needs.
                names = dict.fromkeys((*self._names(), *names_of(certificate)))
                certificate = self._issue(authority, [*names][:MAX_NAMES])
        return ServerFiles(
            certificate_file=self.state.file(SERVER_CERTIFICATE),
            key_file=self.state.file(SERVER_KEY),
            ca_file=self.state.file(CA_CERTIFICATE) if ours else None,
            pin=certificate_pin(certificate.public_bytes(serialization.Encoding.DER)),
            expires_at=certificate.not_valid_after_utc,
            renew_at=_renewal(certificate) if ours else None,
            problem=renewal_problem(self.state, self.now()) if ours else None,
        )

    def _is_due(self, certificate: x509.Certificate) -> bool:
        return self._can_issue() and self.now() >= _renewal(certificate)

    def _lacks_names(self, certificate: x509.Certificate) -> bool:
        # Compare the names without this machine's own name, because kasctl may run on a
        # machine with another name.
        own = {canonical_name(name) for name in self.names}
        missing = own.intersection(self._names()).difference(names_of(certificate))
        return bool(missing) and self._can_issue()

    def _can_issue(self) -> bool:
        # If the CA's key is missing, the certificate stays until an operator replaces
        # it.
        return self.state.read(CA_KEY) is not None

    def _certificate(self, name: str) -> x509.Certificate | None:
        data = self.state.read(name)
        if data is None:
            return None
        try:
            return x509.load_pem_x509_certificate(data)
        except ValueError:
            path = self.state.file(name)
            message = f"{path} is not a PEM certificate; replace it, or remove it"
            raise ConfigurationError([message]) from None

    def _key(self, name: str) -> ec.EllipticCurvePrivateKey | None:
        data = self.state.read(name)
        if data is None:
            return None
        try:
            key = serialization.load_pem_private_key(data, None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            path = self.state.file(name)
            advice = (
                _new_authority("it")
                if name == CA_KEY
                else (
                    f"restore it, or remove it and {SERVER_CERTIFICATE} so that kas "
                    "creates new ones"
                )
            )
            message = f"{path} is not an EC key without password; {advice}"
            raise ConfigurationError([message])
        return key

    def _missing(self, name: str, other: str) -> ConfigurationError:
        if name == CA_KEY:
            text = f"is missing although {other} exists; {_new_authority('it')}"
            return ConfigurationError([f"{self.state.file(name)} {text}"])
        return ConfigurationError(
            [
                f"{self.state.file(name)} is missing although {other} exists; "
                f"restore it, or remove {other} so that kas creates a new one"
            ]
        )

    def _make_authority(self) -> x509.Certificate:
        # Write the key first, because a certificate without its key would be useless.
        key = self._key(CA_KEY) or ec.generate_private_key(ec.SECP256R1())
        self._write_key(CA_KEY, key)
        name = _name(f"kas development CA of {self.hostname}")
        public = key.public_key()
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        certificate = (
            self._builder(name, name, public, CA_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        self._write_certificate(CA_CERTIFICATE, certificate)
        return certificate

    def _issue(
        self, authority: x509.Certificate, names: Sequence[str]
    ) -> x509.Certificate:
        ca_key = self._key(CA_KEY)
        if ca_key is None:
            raise self._missing(CA_KEY, CA_CERTIFICATE)
        if ca_key.public_key() != authority.public_key():
            raise ConfigurationError(
                [
                    f"{self.state.file(CA_KEY)} does not belong to {CA_CERTIFICATE}; "
                    + _new_authority("the right one")
                ]
            )
        # Keep the key, so that pins stay valid and replacing a single file is enough.
        key = self._key(SERVER_KEY) or ec.generate_private_key(ec.SECP256R1())
        self._write_key(SERVER_KEY, key)
        public = key.public_key()
        # Permit the use as a client: kas present the certificate to each other if
        # required.
        usage = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        life = min(SERVER_LIFE, authority.not_valid_after_utc - self.now())
        if life <= timedelta(0):
            path = self.state.file(CA_CERTIFICATE)
            message = f"{path} has expired; {_new_authority()}"
            raise ConfigurationError([message])
        alternatives = x509.SubjectAlternativeName([_general(name) for name in names])
        certificate = (
            self._builder(_name("kas"), authority.subject, public, life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(alternatives, critical=False)
            .add_extension(identifier, critical=False)
            .add_extension(issuer, critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        self._write_certificate(SERVER_CERTIFICATE, certificate)
        return certificate

    def _names(self) -> list[str]:
        names = ["localhost", "127.0.0.1", "::1", self.hostname, *self.names]
        usable = (canonical_name(name) for name in names if is_certificate_name(name))
        return list(dict.fromkeys(usable))[:MAX_NAMES]

    def _builder(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePublicKey,
        life: timedelta,
    ) -> x509.CertificateBuilder:
        now = self.now()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + life)
        )

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey) -> None:
        if self.state.read(name) is None:
            data = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            self.state.write(name, data)

    def _write_certificate(self, name: str, certificate: x509.Certificate) -> None:
        # Make the certificate readable for all users, unlike all other files in the
        # directory.
        data = certificate.public_bytes(serialization.Encoding.PEM)
        self.state.write(name, data, mode=0o644)


def _new_authority(restored: str = "") -> str:
    """
    Return the advice how to get another CA.

    All three files must be removed: kas would treat a remaining certificate as the
    certificate of another CA, and would not renew it.
    """
    first = f"restore {restored} from a backup, or " if restored else ""
    return (
        f"{first}remove {CA_CERTIFICATE}, {CA_KEY} and {SERVER_CERTIFICATE} so that "
        "kas creates new ones: agents and kubeconfigs then need the new "
        f"{CA_CERTIFICATE}"
    )


def renewal_problem(state: StateDirectory, now: datetime) -> str | None:
    """
    Return why kas cannot renew its own certificate now, or will soon be unable to, with
    the remedy.

    :returns: None if kas can renew the certificate.
    """
    if state.read(CA_KEY) is None:
        return (
            f"{state.file(CA_KEY)} is missing, and kas cannot renew its certificate "
            f"{SERVER_CERTIFICATE} without it; {_new_authority('it')}"
        )
    try:
        authority = x509.load_pem_x509_certificate(state.read(CA_CERTIFICATE) or b"")
    except ValueError:
        # Ignore such files: `DevelopmentPki.ensure` reports a damaged file, and creates
        # a missing one.
        return None
    end = authority.not_valid_after_utc
    if now < end - CA_NOTICE:
        return None
    verb = "expired" if end <= now else "expires"
    return (
        f"the CA {state.file(CA_CERTIFICATE)} {verb} on {end:%Y-%m-%d}, and kas cannot "
        f"renew its certificate {SERVER_CERTIFICATE} beyond that; {_new_authority()}"
    )


def ensure(
    state: StateDirectory,
    now: Callable[[], float],
    hostname: str,
    names: Sequence[str] = (),
) -> ServerFiles:
    """Call `DevelopmentPki.ensure` with a clock that counts seconds since 1970."""

    def time() -> datetime:
        return datetime.fromtimestamp(now(), UTC)

    return DevelopmentPki(state, hostname, time, names).ensure()


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the host names and addresses of a certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(
        str(name.value)
        for name in names
        if isinstance(name, (x509.DNSName, x509.IPAddress))
    )


def is_for(certificate: x509.Certificate, host: str) -> bool:
    """
    Return whether a client that connects to *host* accepts the names of *certificate*.
    """
    wanted = canonical_name(host)
    names = set(map(canonical_name, names_of(certificate)))
    parent = wanted.partition(".")[2]
    wildcard = as_address(host) is None and "." in parent and f"*.{parent}" in names
    return wanted in names or wildcard


def _general(name: str) -> x509.GeneralName:
    address = as_address(name)
    return x509.DNSName(name) if address is None else x509.IPAddress(address)


def _name(text: str) -> x509.Name:
    # X.520 permits at most 64 characters.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _renewal(certificate: x509.Certificate) -> datetime:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """
    Return whether *authority* signed *certificate*, whether or not the certificate is
    valid now.
    """
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
