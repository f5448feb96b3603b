"""Names in certificates: host names and addresses."""

from __future__ import annotations

import ipaddress
import re

__all__ = [
    "MAX_CERTIFICATE_NAMES",
    "as_address",
    "canonical_name",
    "certificate_names",
    "is_certificate_name",
]

#: Maximum number of names of one listener, because every handshake sends the names of
#: the certificate.
MAX_CERTIFICATE_NAMES = 20

_HOST_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?")


def as_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """
    Return the IP address in *text*; None if *text* is not an address.

    An address with a zone is not accepted, because certificates cannot contain zones.
    """
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def canonical_name(text: str) -> str:
    """Return the canonical form of a host name or address."""
    address = as_address(text)
    return text.lower() if address is None else str(address)


def is_certificate_name(text: str) -> bool:
    """
    Tell whether a certificate can contain *text*: a host name (also ``*.…``) or an
    address.
    """
    host = text.removeprefix("*.")
    return as_address(text) is not None or bool(
        _HOST_NAME.fullmatch(host) and ".." not in host
    )


def certificate_names(
    instance: object, attribute: object, value: tuple[str, ...]
) -> None:
    """Validate names and addresses for a certificate."""
    for name in value:
        if not is_certificate_name(name):
            raise ValueError(
                f"{name!r} is neither a host name nor an address; write, for instance, "
                "kas.example.org or 192.0.2.2, without scheme and port"
            )
    if len(value) > MAX_CERTIFICATE_NAMES:
        raise ValueError(
            f"at most {MAX_CERTIFICATE_NAMES} names; for more, use your own "
            "certificate (certificate_file and key_file)"
        )
