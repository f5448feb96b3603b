"""Answers that go on until the client leaves: ``watch`` and ``logs -f``."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime

from twisted.internet.interfaces import IPushProducer, IReactorTime
from zope.interface import implementer

from demo.sandbox.store import ApiError, Change, Kind, Object, Store, failure, selects
from tunnel.http1 import Exchange

__all__ = ["MAX_BEHIND", "MAX_LINES", "Feed", "PodLog", "number_in", "watch"]

#: Bytes that are kept for a client that does not read; a watch gets that in an hour.
MAX_BEHIND = 1024 * 1024

#: What a pod's log keeps: some minutes of one that ticks.
MAX_LINES = 1000


@implementer(IPushProducer)
class Feed:
    """
    One answer of unknown length.

    A client that does not read is dropped once it is too far behind.

    :param ended: called once, however it ended.
    """

    def __init__(
        self, exchange: Exchange, content_type: bytes, ended: Callable[[], None]
    ) -> None:
        self._exchange = exchange
        self._ended = ended
        self._stalled = False
        self._behind = 0
        block = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nCache-Control: no-store\r\n"
        exchange.send_head(block % content_type, -1)
        exchange.registerProducer(self, True)

    def send(self, data: bytes) -> None:
        """The next part of it."""
        if self._stalled:
            self._behind += len(data)
        if self._behind > MAX_BEHIND:
            self._exchange.abort()
            self.stopProducing()
        else:
            self._exchange.write(data)

    def finish(self) -> None:
        """It is complete."""
        self._exchange.finish()
        self.stopProducing()

    def body_received(self, data: bytes) -> None:
        """A GET has none."""

    def body_finished(self, trailers: bytes) -> None:
        """A GET has none."""

    def client_gone(self, reason: Exception) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        self.stopProducing()

    def pauseProducing(self) -> None:
        self._stalled = True

    def resumeProducing(self) -> None:
        self._stalled = False
        self._behind = 0

    def stopProducing(self) -> None:
        ended, self._ended = self._ended, lambda: None
        ended()


def watch(
    exchange: Exchange,
    store: Store,
    kind: Kind,
    namespace: str,
    query: Mapping[str, str],
    clock: IReactorTime,
) -> Feed:
    """
    Answer with the changes of some objects, from ``resourceVersion`` on.

    :raises ApiError: an argument is not what it should be.
    """
    version, seconds = (
        number_in(query, name) for name in ("resourceVersion", "timeoutSeconds")
    )

    def line(change: Change) -> bytes:
        found = change.object
        here = namespace in ("", found["metadata"].get("namespace", ""))
        if change.kind is not kind or not here or not selects(query, found):
            return b""
        return _line(change.type, found)

    found = store.select(kind, namespace)
    begin = [_line("ADDED", one) for one in found if selects(query, one)]
    gone = False
    if version:
        try:
            begin = [line(change) for change in store.since(version)]
        except ApiError as error:
            begin, gone = [_line("ERROR", failure(error.code, str(error)))], True
    ends: list[Callable[[], object]] = []

    def ended() -> None:
        while ends:
            ends.pop()()

    feed = Feed(exchange, b"application/json", ended)
    ends.append(store.watch(lambda change: feed.send(line(change))))
    if seconds:
        timer = clock.callLater(seconds, feed.finish)
        ends.append(lambda: timer.cancel() if timer.active() else None)
    feed.send(b"".join(begin))
    if gone:
        feed.finish()
    return feed


def _line(what: str, found: Object) -> bytes:
    return json.dumps({"type": what, "object": found}).encode() + b"\n"


def number_in(query: Mapping[str, str], name: str) -> int:
    """A parameter, 0 where there is none; :raises ApiError: it is no number."""
    text = query.get(name) or "0"
    if not text.isdecimal():
        raise ApiError(400, f"{name}: {text[:20]!r} is not a number")
    return int(text)


class PodLog:
    """
    The log of one pod.

    :param now: the time, in UTC.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lines: deque[tuple[str, str]] = deque(maxlen=MAX_LINES)
        self._followers: dict[Feed, bool] = {}

    def write(self, text: str) -> None:
        """Add one line, and show it to those who follow."""
        line = self._now().isoformat().replace("+00:00", "Z"), text
        self._lines.append(line)
        for feed, timestamps in tuple(self._followers.items()):
            feed.send(_text(line, timestamps))

    def answer(self, exchange: Exchange, query: Mapping[str, str]) -> Feed | None:
        """
        Answer a GET of ``pods/NAME/log``.

        :raises ApiError: ``tailLines`` is no number.
        """
        lines = list(self._lines)
        if "tailLines" in query:
            lines = lines[max(0, len(lines) - number_in(query, "tailLines")) :]
        timestamps = query.get("timestamps") == "true"
        body = b"".join(_text(line, timestamps) for line in lines)
        if query.get("follow") != "true":
            exchange.respond(200, b"\r\nContent-Type: text/plain", body)
            return None

        def ended() -> None:
            self._followers.pop(feed, None)

        feed = Feed(exchange, b"text/plain", ended)
        self._followers[feed] = timestamps
        feed.send(body)
        return feed


def _text(line: tuple[str, str], timestamps: bool) -> bytes:
    return (" ".join(line) if timestamps else line[1]).encode() + b"\n"
