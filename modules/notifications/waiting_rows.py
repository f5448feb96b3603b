"""Changes of one view of one agent, until they are broadcast."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import attrs
from twisted.internet.interfaces import IDelayedCall

from tunnel.api import PublishingAgent

__all__ = ["WaitingBytes", "WaitingRows"]


@attrs.define(eq=False)
class WaitingBytes:
    """Number of bytes that wait, of all views."""

    count: int = 0


@attrs.define(eq=False)
class WaitingRows:
    """
    The latest rows of a view that subscribers do not have.

    :ivar epoch: random; identifies this sequence of messages.
    :ivar sequence: number of the last message.
    :ivar needs_all: whether the next message must have all rows of the view, because
        subscribers may lack more than the rows that wait.
    :ivar size: number of bytes that wait.
    :ivar has_changes: whether a message has to be sent.
    :ivar is_sending: whether a message is being sent.
    :ivar not_before: time of the next message at the earliest.
    """

    agent: PublishingAgent
    view: str
    epoch: str
    of_all: WaitingBytes
    sequence: int = 0
    needs_all: bool = True
    size: int = 0
    has_changes: bool = False
    is_sending: bool = False
    not_before: float = 0.0
    timer: IDelayedCall | None = None
    _put: dict[str, str] = attrs.field(factory=dict)
    _deleted: dict[str, None] = attrs.field(factory=dict)

    def change(
        self, put: Mapping[str, Mapping[str, Any]], deleted: Collection[str]
    ) -> None:
        """Add changes; a later row of a key replaces an earlier one."""
        self.has_changes = True
        if self.needs_all:
            # The rows are read when they are sent.
            return
        for key in deleted:
            self._forget(key)
            self._deleted[key] = None
            self._count(len(key))
        for key, row in put.items():
            self._forget(key)
            self._put[key] = text = _text(row)
            self._count(len(key) + len(text))

    def lose(self) -> None:
        """Forget the changes, so that the next message has all rows."""
        self.has_changes = self.needs_all = True
        self.clear()

    def take_changes(self) -> bytes:
        """Return a message with the changes, and forget them."""
        rows = _object(self._put)
        message = self._message(f'"put":{rows},"delete":{_text(list(self._deleted))}')
        self.has_changes = False
        self.clear()
        return message

    def begin_all(self) -> None:
        """Forget the changes, because all rows are read next."""
        self.has_changes = self.needs_all = False
        self.clear()

    def snapshot(self, rows: Mapping[str, Mapping[str, Any]]) -> bytes:
        """Return a message with all rows of the view."""
        texts = {key: _text(row) for key, row in rows.items()}
        return self._message(f'"snapshot":{_object(texts)}')

    def reload(self) -> bytes:
        """Return a message that tells subscribers to read the rows from kas."""
        return self._message('"reload":true')

    def _message(self, content: str) -> bytes:
        head = _text(
            {
                "agent": self.agent.agent_id,
                "view": self.view,
                "e": self.epoch,
                "s": self.sequence + 1,
            }
        )
        return f"{head[:-1]},{content}}}".encode()

    def clear(self) -> None:
        """Forget the changes."""
        self._put, self._deleted = {}, {}
        self._count(-self.size)

    def _count(self, more: int) -> None:
        self.size += more
        self.of_all.count += more

    def _forget(self, key: str) -> None:
        text = self._put.pop(key, None)
        if text is not None:
            self._count(-len(key) - len(text))
        elif key in self._deleted:
            del self._deleted[key]
            self._count(-len(key))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _object(texts: Mapping[str, str]) -> str:
    """Return a JSON object whose values are JSON already."""
    return f"{{{','.join(f'{_text(key)}:{one}' for key, one in texts.items())}}}"
