"""Settings of the broadcasts to a Rails server."""

from __future__ import annotations

import re
from typing import Final

import attrs

from tunnel.config import RedisConnection, field

__all__ = ["BroadcastSettings"]

#: Maximum number of views: an agent has at most as many.
MAX_VIEWS: Final = 20

#: Maximum number of characters of a prefix, and of a name of a broadcasting.
MAX_NAME: Final = 200

_VIEW: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


def _is_name(instance: object, attribute: object, value: str) -> None:
    if len(value) > MAX_NAME or not value.isprintable() or " " in value:
        raise ValueError(
            f"write at most {MAX_NAME} printable characters without spaces"
        )


def _is_template(instance: object, attribute: object, value: str) -> None:
    _is_name(instance, attribute, value)
    names = _PLACEHOLDER.findall(value)
    unknown = sorted({*names} - {"agent_id", "view"})
    rest = _PLACEHOLDER.sub("", value)
    if unknown or "{" in rest or "}" in rest:
        raise ValueError(
            f"{value!r} may contain {{agent_id}} and {{view}}, and no other braces"
        )
    if "agent_id" not in names:
        raise ValueError(
            f"{value!r} would mix the rows of all agents; add {{agent_id}}, as in "
            "kas:{view}:{agent_id}"
        )


def _are_views(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    if not 1 <= len(value) <= MAX_VIEWS:
        raise ValueError(f"name 1 to {MAX_VIEWS} views, such as summary")
    for one in value:
        if _VIEW.fullmatch(one) is None:
            raise ValueError(f"{one!r} is not the name of a view, such as summary")
        if value.count(one) > 1:
            raise ValueError(f"{one!r} is named twice; remove one of them")


@attrs.frozen(kw_only=True)
class BroadcastSettings:
    """``modules.notifications.action_cable``."""

    redis: RedisConnection = field(doc="the Redis in config/cable.yml of Rails")
    channel_prefix: str = field(
        default="", doc="channel_prefix in config/cable.yml", validator=_is_name
    )
    broadcasting: str = field(
        doc="name of each broadcasting, with {agent_id} and {view}",
        validator=_is_template,
    )
    views: tuple[str, ...] = field(
        doc="views whose rows every subscriber of the broadcasting may see",
        validator=_are_views,
    )

    def channel(self, agent_id: str, view: str) -> str:
        """Return the channel in Redis where Rails expects the rows of a view."""
        values = {"agent_id": agent_id, "view": view}
        # A value may contain braces.
        name = _PLACEHOLDER.sub(lambda found: values[found[1]], self.broadcasting)
        # Rails omits a missing prefix, together with the colon.
        return f"{self.channel_prefix}:{name}" if self.channel_prefix else name
