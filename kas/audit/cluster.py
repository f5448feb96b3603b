"""Events of clusters' own audit logs, joined with the audit log of kas."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from kas.audit.search import AuditQuery, Found, is_event, pieces_of
from tunnel.toolkit.texts import clean

__all__ = ["MAX_JOINED", "ClusterFound", "ClusterLog", "TooManyEvents"]

#: Maximum number of events of clusters that are joined, with about 2 KiB each.
MAX_JOINED = 200_000

#: Maximum characters of a text in a cluster's event; the log of kas has longer ones.
MAX_TEXT = 300

#: Fields that tell where an event was stored.
_PLACE = ("log", "offset")

#: Fields that may differ between the events of one request.
_OF_STAGE = (*_PLACE, "stage", "outcome", "agent")

#: Fields that an event of kas and the API server's event of the same request share.
_SHARED = (
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "namespace",
    "name",
)


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

    An audit id identifies nothing, because API servers accept the client's.  Two events
    are the same only if all their fields are.  A request came through kas only if
    agentk's account made it, and the audit log of kas has an event with its id, user,
    verb and object.

    :param query: the events to look for.
    """

    _query: AuditQuery
    #: Events by their digest.
    _events: dict[bytes, dict[str, Any]] = attrs.field(factory=dict, init=False)
    #: Events of agentk's account by the id of the agent and the audit id.
    _by_id: defaultdict[tuple[str, str], list[dict[str, Any]]] = attrs.field(
        factory=lambda: defaultdict(list), init=False
    )
    #: Digests of the requests that have ended.
    _ended: set[bytes] = attrs.field(factory=set, init=False)
    #: Numbers of the lines that count events which agentk could not read.
    _left_out: list[dict[str, Any]] = attrs.field(factory=list, init=False)

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
            # A line of the file does not decide about these.
            for name in ("credential", "bypassed"):
                event.pop(name, None)
            digest = _digest(event, _PLACE)
            if digest in self._events:
                continue
            self._events[digest] = event
            if event.get("stage") != "begun":
                self._ended.add(_digest(event, _OF_STAGE))
            if event.get("by_agentk") is True:
                self._by_id[_key(event)].append(event)
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
                    for one in self._by_id.get(_key(event), ()):
                        if _is_request(event, one):
                            one["credential"] = str(event["credential"])

    def found(self) -> Iterator[ClusterFound]:
        """Yield the joined events that match the query, oldest first."""
        joined = [
            _joined(event)
            for event in self._events.values()
            if event.get("stage") != "begun"
            or _digest(event, (*_OF_STAGE, "credential")) not in self._ended
        ]
        joined += self._left_out
        joined.sort(key=lambda one: str(one.get("time", "")))
        for event in joined:
            if self._query.matches(event):
                text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
                yield ClusterFound(text.encode("utf-8", "replace"), event)


def _joined(event: Mapping[str, Any]) -> dict[str, Any]:
    joined = {name: value for name, value in event.items() if name not in _PLACE}
    if event.get("by_agentk") is not True:
        joined["bypassed"] = True
    return joined


def _is_request(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """
    Return whether an event of kas and one of the API server are about one request.

    Each field of kas must agree.  kas does not know some of them, such as the name in
    the body of a request that creates an object.
    """
    user = theirs.get("as") or theirs.get("user")
    return _agree(ours.get("as"), user) and all(
        _agree(ours.get(name), theirs.get(name)) for name in _SHARED
    )


def _agree(ours: Any, theirs: Any) -> bool:
    return not ours or clean(str(ours), MAX_TEXT) == theirs


def _digest(event: Mapping[str, Any], without: Iterable[str]) -> bytes:
    """Return a digest of all fields except some."""
    rest = {name: value for name, value in event.items() if name not in without}
    text = json.dumps(rest, sort_keys=True)
    return hashlib.sha256(text.encode()).digest()


def _key(event: Mapping[str, Any]) -> tuple[str, str]:
    return str(event.get("agent_id", "")), str(event.get("id", ""))
