"""A watch that goes on: lists, follows, and begins again where that is due."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from tunnel.api import KubernetesObject, WatchEvent, WatchEventType
from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamError
from tunnel.kubernetes.answers import AnswerLines, error_of
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.timers import cancel_call

__all__ = ["PAGE", "ObjectPage", "watch_events"]

#: Objects of one page of a list: what client-go asks for.
PAGE = 500

#: Seconds of one request of a watch: between this and twice as much, so that watches
#: that began together do not restart together (as in client-go).
LASTS = 300.0

#: More seconds until a connection is given up that should have ended by itself.
LATE = 30.0

#: Seconds between attempts, at first and at most.
RETRY_FIRST, RETRY_MOST = 0.5, 30.0

#: Errors that a retry does not fix.
_FINAL = (Status.PERMISSION_DENIED, Status.NOT_FOUND, Status.INVALID_ARGUMENT)

_CHANGES = {
    one.value: one
    for one in (
        WatchEventType.ADDED,
        WatchEventType.MODIFIED,
        WatchEventType.DELETED,
        WatchEventType.BOOKMARK,
    )
}


@attrs.frozen
class ObjectPage:
    """
    A part of a list.

    :ivar resource_version: of the state that all its pages show.
    """

    objects: list[KubernetesObject]
    resource_version: str


async def watch_events(
    pages: Callable[[], AsyncGenerator[ObjectPage, None]],
    changes: Callable[[Mapping[str, str]], AnswerLines],
    rejected: Callable[[], None],
    clock: IReactorTime,
    jitter: Callable[[], float],
) -> AsyncGenerator[WatchEvent, None]:
    """
    See `tunnel.api.IKubernetesClient.watch`.

    :param pages: lists everything.
    :param changes: begins one request of a watch, with these parameters.
    :param rejected: the API server did not accept the credential.
    """
    version = ""
    backoff = Backoff(jitter, RETRY_FIRST, RETRY_MOST)
    while True:
        failed = True
        try:
            if not version:
                yield WatchEvent(WatchEventType.RESET)
                listed = ""
                async for page in pages():
                    listed = page.resource_version
                    for one in page.objects:
                        yield WatchEvent(WatchEventType.ADDED, one)
                version = listed
                yield WatchEvent(WatchEventType.SYNCED, None, version)
            seconds = LASTS * (1 + jitter())
            asked = {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": f"{seconds:.0f}",
            }
            lines = changes(asked)
            # A connection that was lost without a packet would be read forever.
            late = clock.callLater(seconds + LATE, lines.close)
            begun = clock.seconds()
            try:
                async for event in _changes(lines):
                    version = event.resource_version
                    backoff.reset()
                    yield event
            finally:
                cancel_call(late)
                lines.close()
                if lines.status == 401:
                    rejected()
            # A watch that ends at once, again and again, has failed, too.
            failed = clock.seconds() - begun < 1
            if not failed:
                backoff.reset()
        except CallError as error:
            if error.status in _FINAL:
                raise
            if error.status is Status.OUT_OF_RANGE:
                # 410: the state to go on from is forgotten; all of it is listed again.
                version = ""
        except UpstreamError:
            pass
        if failed:
            await deferLater(clock, backoff.pause())


async def _changes(lines: AnswerLines) -> AsyncGenerator[WatchEvent, None]:
    """
    Iterate over the events of one request.

    :raises CallError: the API server ended it with an error.
    """
    while (line := await lines.next()) is not None:
        try:
            said: Any = json.loads(line)
            if lines.status != 200:
                raise error_of(lines.status, said)
            changed = said["object"]
            if said["type"] == "ERROR":
                raise error_of(changed.get("code", 500), changed)
            kind = _CHANGES[said["type"]]
            version = changed["metadata"]["resourceVersion"]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CallError(
                Status.UNAVAILABLE, "API server: an event that cannot be read"
            ) from None
        except RecursionError:
            # The object is nested too deeply, and would be read again from here
            # forever: skip it, and report all others.
            continue
        whole = None if kind is WatchEventType.BOOKMARK else changed
        yield WatchEvent(kind, whole, version)
    if lines.status not in (0, 200):
        raise error_of(lines.status, None)
