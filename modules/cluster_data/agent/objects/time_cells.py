"""
Cells whose text depends on the current time, such as ages.

The API server computes cells when it sends an object.  A cache computes these cells
again when it is read, by the rules of kubectl's tables.  Source: kubernetes,
pkg/printers/internalversion/printers.go, and apimachinery, pkg/util/duration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from tunnel.api import KubernetesResource

__all__ = ["TimeCells", "human_duration"]

_Cell = Callable[[Mapping[str, Any], float], str | None]

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def human_duration(seconds: float) -> str:
    """Return a duration in the words of kubectl, such as ``5m30s`` or ``3d2h``."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 3 * _HOUR:
        return _of(whole, _MINUTE, "m", 1, "s", 10 * _MINUTE)
    if whole < 2 * _DAY:
        return _of(whole, _HOUR, "h", _MINUTE, "m", 8 * _HOUR)
    if whole < 2 * _YEAR:
        return _of(whole, _DAY, "d", _HOUR, "h", 8 * _DAY)
    return _of(whole, _YEAR, "y", _DAY, "d", 8 * _YEAR)


def _of(whole: int, unit: int, sign: str, part: int, second: str, until: int) -> str:
    """Return a duration in a unit, with a second unit if it is less than *until*."""
    count, rest = divmod(whole, unit)
    if whole >= until or not rest // part:
        return f"{count}{sign}"
    return f"{count}{sign}{rest // part}{second}"


def _since(time: Any, now: float) -> str | None:
    """Return the duration since a time; None if there is no time."""
    try:
        return human_duration(now - datetime.fromisoformat(time).timestamp())
    except (TypeError, ValueError):
        return None


def _part(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _age(found: Mapping[str, Any], now: float) -> str | None:
    return _since(_part(found, "metadata", "creationTimestamp"), now)


def _first_seen(found: Mapping[str, Any], now: float) -> str | None:
    # The two APIs of events have different names for the same fields.
    first = found.get("firstTimestamp") or found.get("deprecatedFirstTimestamp")
    return _since(first or found.get("eventTime"), now)


def _last_seen(found: Mapping[str, Any], now: float) -> str | None:
    last = found.get("lastTimestamp") or found.get("deprecatedLastTimestamp")
    seen = _since(_part(found, "series", "lastObservedTime") or last, now)
    return seen or _first_seen(found, now)


def _duration(found: Mapping[str, Any], now: float) -> str | None:
    if _part(found, "status", "completionTime"):
        return None
    return _since(_part(found, "status", "startTime"), now)


def _last_schedule(found: Mapping[str, Any], now: float) -> str | None:
    return _since(_part(found, "status", "lastScheduleTime"), now)


def _restarts(found: Mapping[str, Any], now: float) -> str | None:
    for kind in ("containerStatuses", "initContainerStatuses"):
        statuses = _part(found, "status", kind)
        ends = [
            end
            for one in (statuses if isinstance(statuses, list) else ())
            if (end := _part(one, "lastState", "terminated", "finishedAt"))
        ]
        if ends:
            return _since(max(ends), now)
    return None


#: Columns of kinds by name, beside ``Age``.
_COLUMNS: Final[Mapping[tuple[str, str], Mapping[str, _Cell]]] = {
    ("", "pods"): {"Restarts": _restarts},
    ("", "events"): {"Last Seen": _last_seen, "First Seen": _first_seen},
    ("events.k8s.io", "events"): {"Last Seen": _last_seen, "First Seen": _first_seen},
    ("batch", "jobs"): {"Duration": _duration},
    ("batch", "cronjobs"): {"Last Schedule": _last_schedule},
}


class _Metadata(msgspec.Struct):
    creation: str | None = msgspec.field(default=None, name="creationTimestamp")


class _Created(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_CREATED = msgspec.json.Decoder(_Created)


class TimeCells:
    """
    Cells of one kind that depend on the time.

    :param columns: ``columnDefinitions`` in JSON.
    """

    def __init__(self, resource: KubernetesResource, columns: bytes) -> None:
        names = [str(one.get("name")) for one in msgspec.json.decode(columns or b"[]")]
        special = _COLUMNS.get((resource.group, resource.name), {})
        self._age = names.index("Age") if "Age" in names else -1
        self._special = [
            (index, special[name])
            for index, name in enumerate(names)
            if name in special
        ]

    def update(self, cells: bytes, text: bytes, now: float) -> bytes:
        """
        Return the cells of an object at a time.

        :param cells: the cells at the time of the last change.
        :param text: the object.
        :param now: seconds since 1970.
        """
        if self._age < 0 and not self._special:
            return cells
        found: list[Any] = msgspec.json.decode(cells)
        if 0 <= self._age < len(found):
            created = _CREATED.decode(text).metadata.creation
            found[self._age] = _since(created, now) or found[self._age]
        whole: Any = None
        for index, cell in self._special:
            # Only pods that restarted have a time in this cell: "3 (5m ago)".
            is_part = cell is _restarts
            if index >= len(found) or (is_part and "(" not in str(found[index])):
                continue
            whole = whole or msgspec.json.decode(text)
            said = cell(whole, now)
            if said is not None:
                count = str(found[index]).partition(" ")[0]
                found[index] = f"{count} ({said} ago)" if is_part else said
        return msgspec.json.encode(found)
