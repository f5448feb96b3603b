"""What keys of kas' configuration are held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kas.identity.jwt import read_secret

__all__ = ["gitlabs", "is_secret", "is_url_path", "not_yet"]


def gitlabs(*names: str) -> Mapping[str, str]:
    """Keys of GitLab's kas that change nothing here, for `FOREIGN_KEYS`."""
    return dict.fromkeys(
        names, "a key of GitLab's kas that has no meaning here: remove it"
    )


def not_yet(advice: str) -> Callable[[Any, Any, Any], None]:
    """A validator for what GitLab's kas has and this one does not: never be silent."""

    def validate(instance: object, attribute: object, value: object) -> None:
        if value is not None:
            raise ValueError(f"this version of kas does not support this yet; {advice}")

    return validate


def is_url_path(instance: object, attribute: object, value: str) -> None:
    """A validator: the path of a URL."""
    if not value.startswith("/") or any(c in value for c in "?# "):
        raise ValueError(f"{value!r} is not the path of a URL; write /{value.strip()}")


def is_secret(instance: object, attribute: object, value: Path) -> None:
    """A validator: a file with a secret that signs tokens."""
    read_secret(value)
