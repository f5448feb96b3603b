"""URLs of servers."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["is_url"]


def is_url(instance: object, attribute: object, value: str) -> None:
    """Validate the URL of a server, which must not contain a secret."""
    try:
        url = urlsplit(value)
        port = url.port
    except ValueError:
        # Omit Python's message, which repeats the text in place of the port.
        raise ValueError(
            "this is not a URL; write for example https://host.example.com"
        ) from None
    # The messages do not quote the value, which may contain a password.
    if url.scheme not in ("http", "https"):
        raise ValueError("write the whole URL, such as https://host.example.com")
    if url.username or url.password:
        raise ValueError("it must not contain a user name or password")
    if not url.hostname or port == 0:
        raise ValueError("the URL has no host, or an unusable port")
    if url.query or url.fragment:
        raise ValueError("a part behind ? or # means nothing here")
