"""Events of clusters' own audit logs, joined with the audit log of kas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from kas.audit.search import AuditQuery, Found, is_event, pieces_of

__all__ = ["MAX_JOINED", "ClusterFound", "ClusterLog", "TooManyEvents"]

#: Maximum number of events of clusters that are joined, with about 2 KiB each.
MAX_JOINED = 200_000


class TooManyEvents(Exception):
    """Error for a search that would need too much memory."""


@attrs.frozen
class ClusterFound(Found):
    """
    An event of a cluster, with the credential of kas if the request came from kas.
    """

    @property
    def who(self) -> str:
        """The credential, or the user in the cluster."""
        event = self.event
        if event.get("credential"):
            return str(event["credential"])
        user = str(event.get("as") or event.get("user") or "-")
        if event.get("bypassed"):
            return f"bypassed ({user})"
        return f"agentk ({user})" if event.get("by_agentk") else user


@attrs.define(eq=False)
class ClusterLog:
    """
    Events of clusters that a search may need, and their credentials.

    A request came through kas only if agentk's account made it and the audit log of kas
    has its id: a client that bypasses kas may send the id of another request.

    :param query: the events to look for.
    """

    _query: AuditQuery
    #: Events by the id of the agent and the audit id.
    _events: dict[tuple[str, str], dict[str, Any]] = attrs.field(
        factory=dict, init=False
    )
    #: Numbers of the lines that count events which agentk could not read.
    _left_out: list[dict[str, Any]] = attrs.field(factory=list, init=False)
    _credentials: dict[tuple[str, str], str] = attrs.field(factory=dict, init=False)

    def add(self, lines: Iterable[bytes]) -> None:
        """
        Read a file of a cluster's audit log.

        :raises TooManyEvents: if there are more than `MAX_JOINED` events.
        """
        # The user and the outcome may be those of another event with the same id.
        wanted = attrs.evolve(self._query, user="", denied=False)
        for found in wanted.find(lines):
            event = dict(found.event)
            if event.get("action") != "cluster.request":
                self._left_out.append(event)
                continue
            key = _key(event)
            before = self._events.get(key)
            if before is None or before.get("stage") == "begun":
                self._events[key] = event
            if len(self._events) + len(self._left_out) > MAX_JOINED:
                raise TooManyEvents(
                    f"more than {MAX_JOINED} events match; select fewer with --since, "
                    "--until, --agent or --namespace"
                )

    def join(self, lines: Iterable[bytes]) -> None:
        """Read a file of the audit log of kas."""
        for line in lines:
            # The comparison excludes most lines that are not requests.
            if b'"kubernetes.request"' not in line:
                continue
            for piece in pieces_of(line):
                try:
                    event = json.loads(piece)
                except (ValueError, RecursionError):
                    continue
                if is_event(event) and event.get("credential"):
                    key = _key(event)
                    if key in self._events:
                        self._credentials[key] = str(event["credential"])

    def found(self) -> Iterator[ClusterFound]:
        """Yield the joined events that match the query, oldest first."""
        joined = [self._joined(key, event) for key, event in self._events.items()]
        joined += self._left_out
        joined.sort(key=lambda one: str(one.get("time", "")))
        for event in joined:
            if self._query.matches(event):
                text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
                yield ClusterFound(text.encode("utf-8", "replace"), event)

    def _joined(self, key: tuple[str, str], event: Mapping[str, Any]) -> dict[str, Any]:
        joined = {
            name: value
            for name, value in event.items()
            if name not in ("log", "offset", "credential", "bypassed")
        }
        if event.get("by_agentk") is not True:
            joined["bypassed"] = True
        elif key in self._credentials:
            joined["credential"] = self._credentials[key]
        return joined


def _key(event: Mapping[str, Any]) -> tuple[str, str]:
    return str(event.get("agent_id", "")), str(event.get("id", ""))
