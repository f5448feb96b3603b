"""URLs that may receive secrets."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["is_private", "quoted_address"]

#: The user and password of a URL or of ``user:password@host``, however wrong the rest.
_USER = re.compile(r"(?:(?<=//)|^)[^/]*@")


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
    Return an address in quotes for a message, with ``***`` for user and password.
    """
    return repr(_USER.sub("***@", text))
