"""
Signatures of policy files, as ``ssh-keygen -Y sign -n txkas-policy@v1`` makes them.

The format is SSHSIG (PROTOCOL.sshsig of OpenSSH).  Keys are in a file like OpenSSH's
``allowed_signers``: a name, options, and a public key.

The package cryptography is imported only if a signature is verified.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from tunnel.errors import ConfigurationError

__all__ = [
    "NAMESPACE",
    "SignatureError",
    "Signer",
    "check_signatures",
    "read_signers",
]

#: Namespace of signatures, so that a signature for another purpose is worthless here.
NAMESPACE: Final = "txkas-policy@v1"

#: Maximum number of signatures of one policy, and of keys: each costs a verification.
MAX_SIGNATURES: Final = 16
MAX_SIGNERS: Final = 100

#: Maximum characters of a file with keys or signatures: a key of RSA with 16,384 bits
#: has 3 KiB.
MAX_TEXT: Final = 512 * 1024

#: Minimum bits of an RSA key, as OpenSSH requires.
MIN_RSA: Final = 2048

_MAGIC: Final = b"SSHSIG"
_BLOCK: Final = re.compile(
    r"-----BEGIN SSH SIGNATURE-----\s+([A-Za-z0-9+/=\s]*?)-----END SSH SIGNATURE-----"
)
_HASHES: Final = ("sha256", "sha512")
_CURVES: Final = {
    "ecdsa-sha2-nistp256": ("SECP256R1", "SHA256"),
    "ecdsa-sha2-nistp384": ("SECP384R1", "SHA384"),
    "ecdsa-sha2-nistp521": ("SECP521R1", "SHA512"),
    "sk-ecdsa-sha2-nistp256@openssh.com": ("SECP256R1", "SHA256"),
}
_EDWARDS: Final = ("ssh-ed25519", "sk-ssh-ed25519@openssh.com")
_KINDS: Final = (*_EDWARDS, *_CURVES, "ssh-rsa")
_LINE: Final = re.compile(
    r"(?P<principal>\S+)\s+(?:(?P<options>(?:[^\s\"]|\"[^\"]*\")+)\s+)?"
    rf"(?P<kind>{'|'.join(map(re.escape, _KINDS))})\s+(?P<key>[A-Za-z0-9+/=]+)"
    r"(?:\s+.*)?"
)
_OPTION: Final = re.compile(r"([a-z-]+)(?:=\"([^\"]*)\")?(?:,|$)", re.IGNORECASE)
_DATE: Final = re.compile(r"(\d{8})(\d{4}(?:\d{2})?)?Z?")

#: Flag of security keys: the user has touched the key.
_PRESENT: Final = 1


class SignatureError(Exception):
    """Raised for a signature that does not count; the text says why."""


@attrs.frozen
class Signer:
    """
    A key that may sign policies.

    :ivar principal: the owner of the key.
    :ivar key: the public key in the format of SSH.
    :ivar begin: seconds since 1970 at which the key becomes valid, and at which it
        expires.
    """

    principal: str
    key: bytes
    begin: float = float("-inf")
    end: float = float("inf")


def read_signers(text: str, file: str) -> tuple[Signer, ...]:
    """
    Read a file with keys.

    :raises ConfigurationError: with every problem.
    """
    signers: list[Signer] = []
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            signer = _signer(line.strip())
            if any(one.key == signer.key for one in signers):
                raise ValueError("the key is already in the file; remove one")
        except ValueError as error:
            problems.append(f"{file}:{number}:1: {error}")
        else:
            if signer is not _OTHER:
                signers.append(signer)
    if len(signers) > MAX_SIGNERS:
        problems.append(f"{file} has more than {MAX_SIGNERS} keys; remove some")
    if not signers and not problems:
        problems.append(f"{file} has no key for {NAMESPACE}; add one")
    if problems:
        raise ConfigurationError(problems)
    return tuple(signers)


#: A key for signatures in other namespaces.
_OTHER: Final = Signer("", b"")


def _signer(line: str) -> Signer:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(
            "expected 'NAME [OPTIONS] KEY-TYPE KEY', with a key of Ed25519, ECDSA or "
            "RSA"
        )
    principal = found["principal"]
    if any(one in principal for one in ',*?!"'):
        raise ValueError("a line names one principal, without patterns")
    try:
        key = base64.b64decode(found["key"], validate=True)
        reader = _Reader(key)
        if reader.text() != found["kind"]:
            raise ValueError("the key has another type")
    except (binascii.Error, SignatureError):
        raise ValueError("the key is not a public key of SSH") from None
    begin, end = float("-inf"), float("inf")
    text, position = found["options"] or "", 0
    while position < len(text):
        option = _OPTION.match(text, position)
        if option is None:
            raise ValueError("the options are malformed")
        position = option.end()
        name, value = option[1].lower(), option[2] or ""
        if name == "namespaces":
            if NAMESPACE not in value.split(","):
                return _OTHER
        elif name == "valid-after":
            begin = _date(value)
        elif name == "valid-before":
            end = _date(value)
        else:
            raise ValueError(
                f"the option {name} is not supported; use namespaces, valid-after and "
                "valid-before"
            )
    return Signer(principal, key, begin, end)


def _date(text: str) -> float:
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("dates are YYYYMMDD or YYYYMMDDHHMM[SS], in UTC")
    digits = found[1] + (found[2] or "").ljust(6, "0")
    return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()


def check_signatures(
    data: bytes, text: str, signers: Sequence[Signer], required: int, now: float
) -> tuple[str, ...]:
    """
    Return the owners of the keys that signed *data*.

    :param data: the policy file, byte for byte.
    :param text: one or several armored signatures.
    :param required: how many different keys of different owners have to sign.
    :param now: seconds since 1970.
    :raises SignatureError: too few signatures count; the text says why.
    """
    blocks = _BLOCK.findall(text)
    if not blocks:
        raise SignatureError("the file has no SSH signature")
    if len(blocks) > MAX_SIGNATURES:
        raise SignatureError(f"the file has more than {MAX_SIGNATURES} signatures")
    owners: dict[str, bytes] = {}
    problems: list[str] = []
    for block in blocks:
        try:
            signer = _verified(data, block, signers, now)
        except SignatureError as error:
            problems.append(str(error))
        else:
            owners.setdefault(signer.principal, signer.key)
    if len(owners) < required:
        why = f" ({'; '.join(dict.fromkeys(problems))})" if problems else ""
        raise SignatureError(
            f"{len(owners)} of {required} required signatures by different owners are "
            f"valid{why}"
        )
    return tuple(owners)


def _verified(data: bytes, block: str, signers: Sequence[Signer], now: float) -> Signer:
    try:
        reader = _Reader(base64.b64decode("".join(block.split()), validate=True))
    except binascii.Error:
        raise SignatureError("a signature is not base64") from None
    if reader.take(len(_MAGIC)) != _MAGIC or reader.number() != 1:
        raise SignatureError("a signature is not SSHSIG of version 1")
    key = reader.string()
    namespace = reader.string()
    reserved = reader.string()
    algorithm = reader.text()
    signature = reader.string()
    reader.finish()
    if namespace != NAMESPACE.encode():
        shown = namespace[:40].decode("ascii", "replace")
        raise SignatureError(
            f"a signature is for the namespace {shown!r}; sign with -n {NAMESPACE}"
        )
    if algorithm not in _HASHES:
        raise SignatureError("a signature uses another hash than SHA-256 or SHA-512")
    signer = next((one for one in signers if one.key == key), None)
    if signer is None:
        raise SignatureError("a signature is by an unknown key")
    if not signer.begin <= now < signer.end:
        raise SignatureError(f"the key of {signer.principal} is not valid now")
    message = (
        _MAGIC
        + _packed(namespace)
        + _packed(reserved)
        + _packed(algorithm.encode())
        + _packed(hashlib.new(algorithm, data).digest())
    )
    try:
        _verify(key, signature, message)
    except SignatureError as error:
        raise SignatureError(f"the signature of {signer.principal}: {error}") from None
    return signer


def _verify(key: bytes, signature: bytes, message: bytes) -> None:
    """
    Verify one signature.

    :raises SignatureError: it is invalid.
    """
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    except ImportError:
        raise SignatureError(
            "signatures need the package cryptography; install txkas[policy]"
        ) from None
    public, parts = _Reader(key), _Reader(signature)
    kind, by = public.text(), parts.text()
    try:
        if kind in _EDWARDS:
            _verify_edwards(kind, by, public, parts, message)
        elif kind in _CURVES:
            _verify_curve(kind, by, public, parts, message)
        else:
            _verify_rsa(by, public, parts, message)
    except InvalidSignature:
        raise SignatureError("it is not a signature of this file") from None
    except (ValueError, UnsupportedAlgorithm):
        raise SignatureError("the key or the signature is malformed") from None


def _verify_edwards(
    kind: str, by: str, public: _Reader, parts: _Reader, message: bytes
) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if by != kind:
        raise SignatureError("its algorithm is not that of the key")
    point = public.string()
    signed, message = _with_security_key(kind, public, parts, message)
    Ed25519PublicKey.from_public_bytes(point).verify(signed, message)


def _verify_curve(
    kind: str, by: str, public: _Reader, parts: _Reader, message: bytes
) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    if by != kind:
        raise SignatureError("its algorithm is not that of the key")
    curve, digest = _CURVES[kind]
    public.string()
    point = public.string()
    signed, message = _with_security_key(kind, public, parts, message)
    numbers = _Reader(signed)
    r, s = (int.from_bytes(numbers.string()) for _ in range(2))
    numbers.finish()
    found = ec.EllipticCurvePublicKey.from_encoded_point(getattr(ec, curve)(), point)
    found.verify(
        encode_dss_signature(r, s), message, ec.ECDSA(getattr(hashes, digest)())
    )


def _verify_rsa(by: str, public: _Reader, parts: _Reader, message: bytes) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    # ssh-rsa itself means SHA-1.
    digests: dict[str, Any] = {
        "rsa-sha2-256": hashes.SHA256,
        "rsa-sha2-512": hashes.SHA512,
    }
    if by not in digests:
        raise SignatureError("its algorithm is not permitted for RSA")
    exponent, modulus = (int.from_bytes(public.string()) for _ in range(2))
    public.finish()
    if modulus.bit_length() < MIN_RSA:
        raise SignatureError(f"the key has less than {MIN_RSA} bits")
    signed = parts.string()
    parts.finish()
    rsa.RSAPublicNumbers(exponent, modulus).public_key().verify(
        signed, message, padding.PKCS1v15(), digests[by]()
    )


def _with_security_key(
    kind: str, public: _Reader, parts: _Reader, message: bytes
) -> tuple[bytes, bytes]:
    """Return the signature, and the message that a security key has signed."""
    signed = parts.string()
    if kind.startswith("sk-"):
        application = public.string()
        flags, counter = parts.take(1), parts.take(4)
        if not flags[0] & _PRESENT:
            raise SignatureError("nobody touched the security key")
        message = (
            hashlib.sha256(application).digest()
            + flags
            + counter
            + hashlib.sha256(message).digest()
        )
    public.finish()
    parts.finish()
    return signed, message


def _packed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


class _Reader:
    """Reader of SSH's wire format; raises `SignatureError` beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes."""
        end = self._position + size
        if end > len(self._data):
            raise SignatureError("a key or signature is cut")
        found = self._data[self._position : end]
        self._position = end
        return found

    def number(self) -> int:
        """Return the next number."""
        found: int = struct.unpack(">I", self.take(4))[0]
        return found

    def string(self) -> bytes:
        """Return the next bytes with their length before them."""
        return self.take(self.number())

    def text(self) -> str:
        """Return the next name of an algorithm."""
        try:
            return self.string().decode("ascii")
        except UnicodeDecodeError:
            raise SignatureError("a key or signature is malformed") from None

    def finish(self) -> None:
        """Check that nothing follows."""
        if self._position != len(self._data):
            raise SignatureError("a key or signature has more bytes at its end")
