"""Validators for keys of kas' configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kas.identity.jwt import read_secret

__all__ = ["gitlabs", "is_secret", "is_url_path"]


def gitlabs(*names: str) -> Mapping[str, str]:
    """
    Return entries for `IGNORED_KEYS` for keys of GitLab's kas, so that configuration
    files of GitLab's kas work with this kas, too.
    """
    return dict.fromkeys(names, "a key of GitLab's kas that has no effect here")


def is_url_path(instance: object, attribute: object, value: str) -> None:
    """Validate the path of a URL."""
    if not value.startswith("/") or any(c in value for c in "?# "):
        raise ValueError(f"{value!r} must begin with / and not contain '?', '#' or ' '")


def is_secret(instance: object, attribute: object, value: Path) -> None:
    """Validate a file that contains a secret for signing tokens."""
    read_secret(value)
