"""What keys of kas' configuration are held against."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kas.identity.jwt import read_secret
from tunnel.program.profile import MAX_SECONDS

__all__ = ["gitlabs", "is_duration_of_profile", "is_secret", "is_url", "is_url_path"]


def gitlabs(*names: str) -> Mapping[str, str]:
    """Keys of GitLab's kas, for `IGNORED_KEYS`: its files start this kas, too."""
    return dict.fromkeys(names, "a key of GitLab's kas that changes nothing here")


def is_duration_of_profile(instance: object, attribute: object, value: float) -> None:
    """A validator: seconds that a profile may take."""
    if not 0 < value <= MAX_SECONDS:
        raise ValueError(f"write more than 0s, and at most {MAX_SECONDS}s")


def is_url(instance: object, attribute: object, value: str) -> None:
    """A validator: the URL of a server, without a secret in it."""
    try:
        url = urlsplit(value)
        port = url.port
    except ValueError as error:
        raise ValueError(f"this is no URL ({error})") from None
    # Without the value in any message: there may be a password in it.
    if url.scheme not in ("http", "https"):
        raise ValueError("write the whole URL, such as https://host.example.com")
    if url.username or url.password:
        raise ValueError("no user name or password belongs into it")
    if not url.hostname or port == 0:
        raise ValueError("there is no host in it, or no usable port")
    if url.query or url.fragment:
        raise ValueError("a part behind ? or # means nothing here")


def is_url_path(instance: object, attribute: object, value: str) -> None:
    """A validator: the path of a URL."""
    if not value.startswith("/") or any(c in value for c in "?# "):
        raise ValueError(f"{value!r} is not the path of a URL; write /{value.strip()}")


def is_secret(instance: object, attribute: object, value: Path) -> None:
    """A validator: a file with a secret that signs tokens."""
    read_secret(value)
