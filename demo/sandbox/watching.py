"""``watch``: changes as they happen, one JSON document per line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorTime

from demo.sandbox.feeds import Feed
from demo.sandbox.selectors import Selector
from demo.sandbox.status import ApiError, failure
from demo.sandbox.store import Change, Kind, Store
from tunnel.http1 import Exchange

__all__ = ["watch"]

Object = dict[str, Any]
Render = Callable[[Object], Object]


def watch(
    exchange: Exchange,
    store: Store,
    kind: Kind,
    namespace: str,
    selector: Selector,
    render: Render,
    *,
    version: str,
    initial: bool,
    seconds: str,
    clock: IReactorTime,
) -> Feed:
    """
    Answer with the changes of some objects.

    :param render: what to show of an object.
    :param version: where to begin; nothing or 0 is with the objects as they are.
    :param initial: begin with these objects anyway, and tell where they end.
    :param seconds: after these it ends.
    :raises ApiError: an argument is no number.
    """
    for number in (version, seconds):
        if number and not number.isdecimal():
            raise ApiError(400, f"{number[:20]!r} is not a number")

    def line(change: Change) -> bytes:
        if change.kind is not kind or namespace not in ("", change.namespace):
            return b""
        return _event(change, selector, render)

    if initial or version in ("", "0"):
        begin = [
            _line("ADDED", render(found))
            for found in store.select(kind, namespace)
            if selector(found)
        ]
        if initial:
            begin.append(_line("BOOKMARK", _bookmark(kind, store.version)))
    else:
        try:
            begin = [line(change) for change in store.since(int(version))]
        except ApiError as error:
            begin = [_line("ERROR", failure(error.code, str(error), error.reason))]
    ends: list[Callable[[], Any]] = []

    def ended() -> None:
        while ends:
            ends.pop()()

    feed = Feed(exchange, b"application/json", ended)
    ends.append(store.watch(lambda change: feed.send(line(change))))
    if seconds:
        timer = clock.callLater(int(seconds), feed.finish)

        def forget() -> None:
            if timer.active():
                timer.cancel()

        ends.append(forget)
    feed.send(b"".join(begin))
    if any(part.startswith(b'{"type": "ERROR"') for part in begin):
        feed.finish()
    return feed


def _event(change: Change, selector: Selector, render: Render) -> bytes:
    before, after = change.before, change.after
    was = before is not None and selector(before)
    if after is not None and selector(after):
        return _line("MODIFIED" if was else "ADDED", render(after))
    if was and before is not None:
        return _line("DELETED", render(before))
    return b""


def _line(kind: str, content: Object) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


def _bookmark(kind: Kind, version: int) -> Object:
    return {
        "kind": kind.kind,
        "apiVersion": "v1",
        "metadata": {
            "resourceVersion": str(version),
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    }
