"""The part of an API server's audit event that kas gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import attrs

from modules.cluster_audit.agent.event_filter import EventFilter
from modules.cluster_audit.wire import cluster_audit_pb2 as wire
from tunnel.toolkit.texts import clean

__all__ = ["MAX_WHOLE", "EventReader", "InvalidEvent", "decoded"]

#: Maximum bytes of a line that is parsed with the bodies in it.
MAX_WHOLE = 128 * 1024

#: Bytes that are filtered at once.
_PART = 64 * 1024

#: Maximum characters of a text; names of objects have at most 253.
MAX_TEXT = 300

#: Verbs of requests that change nothing.
_READS: Final = frozenset(("get", "list", "watch"))

#: Subresources whose requests are sessions, or reach a program in the cluster.
_SESSIONS: Final = frozenset(("exec", "attach", "portforward", "proxy"))

#: Objects that are renewed every few seconds, and tell nothing about users.
_NOISE: Final = frozenset((("coordination.k8s.io", "leases"), ("", "events")))


class InvalidEvent(ValueError):
    """Error for a line that is not an event."""


@attrs.frozen
class EventReader:
    """
    Reader of events of ``audit.k8s.io``.

    :ivar everything: whether to keep reads, too.
    :ivar account: the name of agentk's own user in the cluster.
    """

    everything: bool = False
    account: str = ""

    def read(self, line: bytes) -> wire.Event | None:
        """
        Return the event of a line of the log; None if kas does not need the event.

        :raises InvalidEvent: if the line is not an event.
        """
        try:
            # Parsed values take up to 30 times as much memory as their text.
            event = decoded(line if len(line) <= MAX_WHOLE else filtered(line, 1))
        except ValueError:
            raise InvalidEvent("the line is not JSON") from None
        if not isinstance(event, dict):
            raise InvalidEvent("the line is not an object")
        return self.of(event)

    def of(self, event: Mapping[str, Any]) -> wire.Event | None:
        """Return a parsed event like `read`."""
        audit_id, stage = _text(event, "auditID"), _text(event, "stage")
        if not audit_id or not stage:
            raise InvalidEvent("the event has no auditID or no stage")
        verb, about = _text(event, "verb"), _part(event, "objectRef")
        subresource = _text(about, "subresource")
        is_session = subresource in _SESSIONS
        if stage == "ResponseStarted":
            # Other requests that last, such as watches, are recorded at their end.
            if not is_session:
                return None
        elif stage not in ("ResponseComplete", "Panic"):
            return None
        code = _part(event, "responseStatus").get("code")
        found = wire.Event(
            audit_id=audit_id,
            stage="begun" if stage == "ResponseStarted" else "ended",
            time=_microseconds(event),
            user=_text(_part(event, "user"), "username"),
            impersonated=_text(_part(event, "impersonatedUser"), "username"),
            verb=verb,
            group=_text(about, "apiGroup"),
            version=_text(about, "apiVersion"),
            resource=_text(about, "resource"),
            subresource=subresource,
            namespace=_text(about, "namespace"),
            name=_text(about, "name"),
            code=code if isinstance(code, int) and 0 <= code < 1000 else 0,
            source=_first(event.get("sourceIPs")),
            user_agent=_text(event, "userAgent"),
        )
        if not found.resource:
            found.path = _text(event, "requestURI").partition("?")[0]
        found.by_agentk = bool(self.account) and found.user == self.account
        return found if self.everything or _matters(found, is_session) else None


def decoded(text: bytes, depth: int = 1) -> Any:
    """
    Return the value of a JSON text with bodies of requests, which clients choose.

    API servers accept bodies that Python does not: with deep nesting, numbers of any
    length, and invalid UTF-8.  Deeply nested bodies are None, and long numbers 0.

    :param depth: see `EventFilter`.
    :raises ValueError: if the text is not JSON.
    """
    try:
        return _decoded(text)
    except RecursionError:
        return _decoded(filtered(text, depth))


def filtered(text: bytes, depth: int) -> bytes:
    """Return what `EventFilter` keeps of a text."""
    filtering = EventFilter(depth)
    parts = range(0, len(text), _PART)
    return b"".join(filtering.feed(text[one : one + _PART]) for one in parts)


def _decoded(text: bytes) -> Any:
    return json.loads(text.decode("utf-8", "replace"), parse_int=_integer)


def _integer(text: str) -> int:
    return int(text) if len(text) < 20 else 0


def _matters(event: wire.Event, is_session: bool) -> bool:
    """
    Return whether an event is a change, a session, a refusal or a read of Secrets.
    """
    if event.code in (401, 403):
        return True
    kind = (event.group, event.resource)
    if kind == ("", "secrets") or is_session:
        return True
    return event.verb not in _READS and bool(event.resource) and kind not in _NOISE


def _part(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = event.get(name)
    return found if isinstance(found, dict) else {}


def _text(event: Mapping[str, Any], name: str) -> str:
    found = event.get(name)
    return clean(found, MAX_TEXT) if isinstance(found, str) else ""


def _first(found: Any) -> str:
    if isinstance(found, list) and found and isinstance(found[0], str):
        return clean(found[0], MAX_TEXT)
    return ""


def _microseconds(event: Mapping[str, Any]) -> int:
    text = _text(event, "requestReceivedTimestamp") or _text(event, "stageTimestamp")
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e6)
    except (ValueError, OverflowError):
        return 0
