"""URLs to which secrets may be sent."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["is_private"]


def is_private(url: str) -> bool:
    """Whether nobody on the way can read or change what is sent there."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme != "http":
            return parts.scheme == "https" and bool(host)
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
