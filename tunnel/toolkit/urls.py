"""URLs that may receive secrets."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["is_private", "quoted_address"]


def is_private(url: str) -> bool:
    """Return whether data sent to *url* can be neither read nor changed on the way."""
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
    the values of a query, and for text that stands where a port should.
    """
    scheme, found, rest = text.partition("://")
    if not found or "@" in scheme:
        scheme, found, rest = "", "", text
    # However wrong the rest is: a password may contain a slash.
    _, at, host = rest.rpartition("@")
    host, mark, _ = host.partition("?")
    if host.startswith(":"):
        # The host is missing: this may be a password.
        host = ":***"
    more = "?***" if mark else ""
    return repr(f"{scheme}{found}{'***@' if at else ''}{host}{more}")
