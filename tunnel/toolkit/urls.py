"""URLs that may receive secrets."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["is_private", "quoted_address"]


def is_private(url: str) -> bool:
    """Tell whether an eavesdropper can neither read nor change data sent to *url*."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme != "http":
            return parts.scheme == "https" and bool(host)
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def quoted_address(text: str) -> str:
    """
    Return an address in quotes for a message, with ``***`` for user and password, for
    the values of a query, and for text in place of a port.
    """
    scheme, found, rest = text.partition("://")
    if not found or "@" in scheme:
        scheme, found, rest = "", "", text
    # The user name and password are removed even if the rest of the address is invalid,
    # because a password may contain a slash.
    _, at, host = rest.rpartition("@")
    host, mark, _ = host.partition("?")
    if host.startswith(":"):
        # The host is missing: this may be a password.
        host = ":***"
    more = "?***" if mark else ""
    return repr(f"{scheme}{found}{'***@' if at else ''}{host}{more}")
