"""Search of the API server's audit log for the users who changed an object."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from modules.gitops.agent.drift.change_authors import REMEMBERED, ROUNDED, seconds_of
from modules.gitops.agent.objects.differences import Writer
from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import KubernetesResource
from tunnel.kubernetes import query_value
from tunnel.toolkit.texts import clean

__all__ = ["KubernetesAuditLog"]

#: Maximum bytes that are searched, from the end of the file: about a minute of a busy
#: API server.  The search takes some milliseconds of a thread.
MAX_READ = 64 * 1024**2

#: Maximum bytes of a parsed line: policies that log whole objects cause lines of
#: megabytes, which contain the object's name anywhere.
MAX_LINE = 256 * 1024

#: Maximum number of lines that are parsed: the last lines that contain the object's
#: name.
MAX_LINES = 200

#: Seconds until the second search: an event may be written after agentk saw the change.
LATE = 0.5

#: Maximum characters of a user's name, and maximum number of returned names.
MAX_NAME, MAX_NAMES = 200, 10

#: Maximum characters of a field manager; the limit of API servers.
MAX_MANAGER = 128

_CHANGES = frozenset(("create", "update", "patch"))


@attrs.define(eq=False)
class KubernetesAuditLog:
    """
    Reader of the API server's audit log, a file with an ``audit.k8s.io`` event as JSON
    on each line.

    The file is read only when the author of a change is needed, and its content is not
    cached.

    :param now: returns the time in seconds since 1970.
    """

    _log = Logger()

    path: Path
    _clock: IReactorTime
    _now: Callable[[], float]
    _is_unreadable: bool = attrs.field(default=False, init=False)

    async def of(
        self,
        resource: KubernetesResource,
        key: ObjectKey,
        age: float,
        writers: Collection[Writer],
    ) -> tuple[str, ...]:
        """
        Return the users that changed an object, such as ``kubernetes:alice``.

        :param age: seconds since the object last had the state in Git; earlier changes
            are ignored.
        :param writers: the writers whose changes count; empty if the object was
            deleted.
        """
        since = self._now() - min(age, REMEMBERED)
        found = await self._users(resource, key, since, writers)
        if not found and not self._is_unreadable:
            await deferLater(self._clock, LATE)
            found = await self._users(resource, key, since, writers)
        return tuple(sorted(found)[:MAX_NAMES])

    async def _users(
        self,
        resource: KubernetesResource,
        key: ObjectKey,
        since: float,
        writers: Collection[Writer],
    ) -> set[str]:
        found: set[str] = set()
        try:
            lines = await deferToThread(_lines, self.path, key.name)
        except OSError as error:
            if not self._is_unreadable:
                self._log.warn(
                    "the audit log {path} cannot be read ({why}): changes that "
                    "bypass kas are reported without a user",
                    path=str(self.path),
                    why=error.strerror,
                )
            self._is_unreadable = True
            return found
        self._is_unreadable = False
        for line in lines:
            event = _event(line)
            if _is_about(event, resource, key) and _time(event) >= since - ROUNDED:
                if _fits(event, writers):
                    found.add(_user(event))
        return found


def _lines(path: Path, name: str) -> list[bytes]:
    """Return the last lines that contain *name*."""
    part = b'"name":' + json.dumps(name, ensure_ascii=False).encode()
    with path.open("rb") as source:
        size = source.seek(0, 2)
        source.seek(max(0, size - MAX_READ))
        text = source.read(MAX_READ)
    return list(_with(part, text))


def _with(part: bytes, text: bytes) -> Iterator[bytes]:
    end = len(text)
    for _ in range(MAX_LINES):
        found = text.rfind(part, 0, end)
        if found < 0:
            return
        begin = text.rfind(b"\n", 0, found) + 1
        after = text.find(b"\n", found)
        # The last line without an end is still being written.
        if 0 <= after <= begin + MAX_LINE:
            yield text[begin:after]
        end = begin


def _event(line: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _part(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = event.get(name)
    return found if isinstance(found, dict) else {}


def _text(event: Mapping[str, Any], name: str) -> str:
    found = event.get(name)
    return found if isinstance(found, str) else ""


def _is_about(
    event: Mapping[str, Any], resource: KubernetesResource, key: ObjectKey
) -> bool:
    """Return whether an event changed the object."""
    named, code = _part(event, "objectRef"), _part(event, "responseStatus").get("code")
    place = (resource.group, resource.name, key.namespace, key.name)
    uri = _text(event, "requestURI").encode()
    return (
        _text(event, "stage") == "ResponseComplete"
        and isinstance(code, int)
        and 200 <= code < 300
        and tuple(
            _text(named, one) for one in ("apiGroup", "resource", "namespace", "name")
        )
        == place
        and query_value(uri.partition(b"?")[2], b"dryRun") is None
    )


def _time(event: Mapping[str, Any]) -> float:
    """Return the time of an event's response, in seconds since 1970."""
    try:
        return datetime.fromisoformat(_text(event, "stageTimestamp")).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _begun(event: Mapping[str, Any]) -> float:
    try:
        text = _text(event, "requestReceivedTimestamp")
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _fits(event: Mapping[str, Any], writers: Collection[Writer]) -> bool:
    verb, part = _text(event, "verb"), _text(_part(event, "objectRef"), "subresource")
    if not writers:
        return verb == "delete" and not part
    if verb not in _CHANGES or part == "status":
        return False
    manager, begun, ended = _manager(event), _begun(event), _time(event)
    for one in writers:
        # The time is truncated to a second.
        time = seconds_of(one.time)
        is_then = time is not None and begun - ROUNDED <= time <= ended + ROUNDED
        if manager == one.manager and is_then:
            return True
    return False


def _manager(event: Mapping[str, Any]) -> str:
    """Return the field manager of a request, determined as API servers do."""
    query = _text(event, "requestURI").encode().partition(b"?")[2]
    named = query_value(query, b"fieldManager")
    if named:
        return named.decode("utf-8", "replace")[:MAX_MANAGER]
    return _text(event, "userAgent").partition("/")[0][:MAX_MANAGER] or "unknown"


def _user(event: Mapping[str, Any]) -> str:
    """Return the user, or the impersonated user, of a request."""
    as_whom = _part(event, "impersonatedUser") or _part(event, "user")
    return clean(f"kubernetes:{_text(as_whom, 'username') or 'unknown'}", MAX_NAME)
