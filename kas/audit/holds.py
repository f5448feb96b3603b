"""Holds: events that retention must not remove."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from kas.audit.files import lines_of, open_log
from kas.audit.search import AuditQuery
from kas.state.directory import StateDirectory
from tunnel.errors import ConfigurationError

__all__ = ["MAX_HOLDS", "Hold", "Holds", "new_hold_id"]

#: Name of the file in the state directory.
FILE = "audit-holds.json"

#: Maximum number of holds: retention searches each old file for the events of each.
MAX_HOLDS = 100


@attrs.frozen(kw_only=True)
class Hold:
    """
    A reason to keep events; an empty selector selects all.

    :ivar expires: the end of the hold, as lines have times; empty if it has none.
    :ivar since: the earliest time of the events.
    :ivar until: the time before which the events were.
    """

    id: str
    reason: str
    operator: str
    created: str
    expires: str = ""
    user: str = ""
    agent: str = ""
    since: str = ""
    until: str = ""

    @property
    def query(self) -> AuditQuery:
        """The events that are kept."""
        return AuditQuery(
            user=self.user, agent=self.agent, since=self.since, until=self.until
        )

    def is_over(self, now: str) -> bool:
        """Tell whether the hold has expired."""
        return bool(self.expires) and self.expires <= now

    def keeps(self, file: Path) -> bool:
        """
        Tell whether a file of a log has an event that is kept.

        :raises OSError: if the file cannot be read.
        """
        with open_log(file) as log:
            return next(self.query.find(lines_of(log)), None) is not None


class Holds:
    """The holds of all logs with one state directory; all methods block."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

    def read(self) -> list[Hold]:
        """
        Return the holds, also those that have expired.

        :raises ConfigurationError: if the file cannot be read; then nothing may be
            removed.
        """
        data = self._state.read(FILE)
        if data is None:
            return []
        try:
            return [_hold(one) for one in json.loads(data)]
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            path = self._state.file(FILE)
            raise ConfigurationError(
                [f"{path} cannot be read ({error}); restore it from a backup"]
            ) from None

    def add(self, hold: Hold, now: str) -> Hold:
        """
        Store a hold, and return it; remove holds that have expired.

        :raises ConfigurationError: if there are too many, or the file cannot be used.
        """
        with self._state.lock():
            kept = [one for one in self.read() if not one.is_over(now)]
            if len(kept) >= MAX_HOLDS:
                raise ConfigurationError(
                    [f"{MAX_HOLDS} holds exist; remove one with 'kasctl audit release'"]
                )
            hold = attrs.evolve(hold, id=hold.id or new_hold_id())
            self._write([*kept, hold])
        return hold

    def remove(self, hold_id: str) -> Hold | None:
        """Remove a hold, and return it; None if it does not exist."""
        with self._state.lock():
            holds = self.read()
            for one in holds:
                if one.id == hold_id:
                    self._write([other for other in holds if other is not one])
                    return one
        return None

    def _write(self, holds: list[Hold]) -> None:
        content = [attrs.asdict(one) for one in holds]
        self._state.write(FILE, json.dumps(content).encode())


def new_hold_id() -> str:
    """Return an id for a new hold."""
    return secrets.token_hex(4)


def _hold(found: Mapping[str, Any]) -> Hold:
    return Hold(**{str(name): str(value) for name, value in found.items()})
