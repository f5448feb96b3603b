"""
Users who changed an object, if their requests came through kas.

The API server records a field manager and a time in seconds, but no user.  A request
through kas made a change if the object, the manager and the second match, and if the
numbers of requests and changes are equal.  Otherwise, or if there were more requests
than kas remembers, agentk does not name a user.
"""

from __future__ import annotations

import json
from calendar import timegm
from collections import deque
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from time import strptime
from typing import Any

import attrs

from modules.gitops.agent.objects.differences import Writer
from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import KubernetesResource, KubernetesWrite
from tunnel.toolkit.recent import Recent

__all__ = ["Changes", "Writes", "seconds_of"]

#: Maximum number of objects whose last writes and changes are remembered, and maximum
#: number of writes of each object.
MAX_OBJECTS, MAX_OF_ONE = 1000, 8

#: Seconds that requests are remembered.
REMEMBERED = 60.0

#: Maximum difference in seconds between the API server's ``Date`` and its records: both
#: are truncated to seconds.
ROUNDED = 1.0

#: Seconds between changes of an object that the API server may record as one.
TOGETHER = 2 * ROUNDED

_Place = tuple[str, str, str, str]


def seconds_of(time: str) -> float | None:
    """
    Parse a time as API servers write it, as seconds since 1970; None if it is invalid.
    """
    try:
        return timegm(strptime(time, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return None


@attrs.define(eq=False)
class Writes:
    """
    Record of the recent writes that clients made through kas.

    :param seconds: returns the time of a monotonic clock.
    """

    _seconds: Callable[[], float]
    _found: Recent[_Place, deque[tuple[float, KubernetesWrite]]] = attrs.field(
        factory=lambda: Recent(MAX_OBJECTS)
    )

    def add(self, write: KubernetesWrite) -> None:
        """Remember a write."""
        if write.subresource == "status":
            # Ignore these clients: they write often, and agentk does not look for their
            # users.
            return
        place = write.group, write.resource, write.namespace, write.name
        found = self._found.get(place) or deque(maxlen=MAX_OF_ONE)
        found.append((self._seconds(), write))
        self._found[place] = found

    def of(
        self,
        resource: KubernetesResource,
        key: ObjectKey,
        since: float,
        writers: Collection[Writer],
        changes: int,
    ) -> tuple[str, ...]:
        """
        Return the credentials whose requests match the changes of *writers*.

        :param since: the time when the object last had the state in Git; earlier
            requests do not count.
        :param changes: number of recent changes; 0 if the object was deleted.
        """
        place = resource.group, resource.name, key.namespace, key.name
        since = max(since, self._seconds() - REMEMBERED)
        lately = [one for at, one in self._found.get(place, ()) if at > since]
        if max(changes, len(lately)) >= MAX_OF_ONE:
            # Further requests may have been forgotten, and one of them may have made
            # this change.
            return ()
        if not changes:
            # Consider requests for the object itself, without its subresources.
            fitting = [
                one for one in lately if one.verb == "delete" and not one.subresource
            ]
            return tuple(sorted({one.credential_id for one in fitting}))
        fitting = [
            one
            for one in lately
            if one.verb in ("update", "patch", "create")
            and any(_is_of(one, writer) for writer in writers)
        ]
        if len(fitting) < changes:
            # At least one of the changes did not come through kas, and may be this one.
            return ()
        return tuple(sorted({one.credential_id for one in fitting}))


def _is_of(write: KubernetesWrite, writer: Writer) -> bool:
    if not write.manager or write.manager != writer.manager:
        return False
    if not writer.time:
        # If the scale was changed, API servers record the manager, but no time.
        return "scale" == write.subresource == writer.subresource
    time = seconds_of(writer.time)
    return (
        time is not None
        and write.time - write.seconds - ROUNDED <= time <= write.time + ROUNDED
    )


@attrs.define(eq=False)
class _Changed:
    """
    Recent changes of one object.

    :ivar looks: the times at which a digest of the object's fields was computed.  These
        times are limited, because computing a digest costs as much as reading the
        fields.
    """

    times: deque[float] = attrs.field(factory=lambda: deque[float](maxlen=MAX_OF_ONE))
    looks: deque[float] = attrs.field(factory=lambda: deque[float](maxlen=MAX_OF_ONE))
    digest: str = ""


@attrs.define(eq=False)
class Changes:
    """
    Counter of the recent changes of objects, without changes of their status.

    :param seconds: as for `Writes`.
    """

    _seconds: Callable[[], float]
    _found: Recent[ObjectKey, _Changed] = attrs.field(
        factory=lambda: Recent(MAX_OBJECTS)
    )

    def note(self, key: ObjectKey, metadata: Mapping[str, Any]) -> None:
        """
        Count a change of an object, unless *metadata* shows that only the object's
        status changed.
        """
        found, now = self._found.get(key) or _Changed(), self._seconds()
        self._found[key] = found
        if len(found.looks) == MAX_OF_ONE and found.looks[0] >= now - TOGETHER:
            # Do not count further: agentk does not look for the user of an object that
            # changes this often.
            found.times.append(now)
            found.digest = ""
            return
        found.looks.append(now)
        digest = _digest(metadata)
        if not digest or found.digest != digest:
            found.times.append(now)
            found.digest = digest

    def forget(self, key: ObjectKey) -> None:
        """Forget an object, so that only later changes of it count."""
        self._found.pop(key, None)

    def lately(self, key: ObjectKey) -> int:
        """Return how often the object changed around its last change; at least 1."""
        found = self._found.get(key)
        if found is None or not found.times:
            return 1
        return sum(at >= found.times[-1] - TOGETHER for at in found.times)


def _digest(metadata: Mapping[str, Any]) -> str:
    """
    Return a digest that changes when a field gets another owner or is written again.

    The digest is empty if the fields are nested too deeply.
    """
    fields = [
        one
        for one in metadata.get("managedFields") or ()
        if one.get("subresource") != "status"
    ]
    try:
        text = json.dumps(fields, sort_keys=True)
    except RecursionError:
        return ""
    return sha256(text.encode()).hexdigest()[:16]
