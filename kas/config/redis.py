"""Section ``redis`` of the configuration: the storage that several kas share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from kas.config.checks import gitlabs
from tunnel.config import RedisConnection, field

__all__ = ["Redis"]


@attrs.frozen(kw_only=True)
class Redis(RedisConnection):
    """``redis``: the storage that several kas share."""

    IGNORED_KEYS: ClassVar[Mapping[str, str]] = gitlabs(
        "pool_size", "read_timeout", "idle_timeout"
    )

    key_prefix: str = field(default="gitlab-kas", doc="prefix of every key")
