"""What pods have written, and who follows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import attrs

from demo.sandbox.feeds import Feed
from demo.sandbox.status import ApiError
from tunnel.http1 import Exchange

__all__ = ["MAX_LINES", "PodLog"]

#: What a pod's log keeps: some minutes of one that ticks.
MAX_LINES = 1000


@attrs.frozen
class _Line:
    time: datetime
    text: str

    def encode(self, timestamps: bool) -> bytes:
        stamp = f"{self.time.isoformat().replace('+00:00', 'Z')} " if timestamps else ""
        return f"{stamp}{self.text}\n".encode()


class PodLog:
    """
    The log of one pod.

    :param now: the time, in UTC.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lines: deque[_Line] = deque(maxlen=MAX_LINES)
        self._followers: dict[Feed, bool] = {}

    def write(self, text: str) -> None:
        """Add one line, and show it to whoever follows."""
        line = _Line(self._now(), text)
        self._lines.append(line)
        for feed, timestamps in tuple(self._followers.items()):
            feed.send(line.encode(timestamps))

    def answer(self, exchange: Exchange, query: Mapping[str, str]) -> Feed | None:
        """
        Answer a GET of ``pods/NAME/log``.

        :raises ApiError: for what nobody has, or an argument that is no number.
        """
        if _is_true(query.get("previous")):
            raise ApiError(400, "previous terminated container not found")
        lines = list(self._lines)
        if "sinceSeconds" in query:
            age = timedelta(seconds=_number(query, "sinceSeconds"))
            lines = [line for line in lines if line.time >= self._now() - age]
        if "tailLines" in query:
            lines = lines[max(0, len(lines) - _number(query, "tailLines")) :]
        timestamps = _is_true(query.get("timestamps"))
        body = b"".join(line.encode(timestamps) for line in lines)
        if not _is_true(query.get("follow")):
            exchange.respond(200, b"\r\nContent-Type: text/plain", body)
            return None

        def ended() -> None:
            self._followers.pop(feed, None)

        feed = Feed(exchange, b"text/plain", ended)
        self._followers[feed] = timestamps
        feed.send(body)
        return feed


def _is_true(value: str | None) -> bool:
    return value in ("1", "t", "true", "True", "TRUE")


def _number(query: Mapping[str, str], name: str) -> int:
    if not query[name].isdecimal():
        raise ApiError(400, f"{name}: {query[name][:20]!r} is not a number")
    return int(query[name])
