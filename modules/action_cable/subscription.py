"""One subscription: its messages, and the part of them that a slow client gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from zope.interface import implementer

from modules.action_cable import messages
from tunnel.api import ICableCaller, ICableSubscription

__all__ = ["MAX_PENDING_BYTES", "MAX_SNAPSHOT_BYTES", "CableSubscription"]

#: Maximum bytes of a message, and of all messages of one snapshot, which wait for the
#: client as a whole.
MAX_SNAPSHOT_BYTES: Final = 16 * 1024 * 1024

#: Maximum bytes of the latest messages, of all subscriptions of a connection, that
#: wait for a slow client; above it, a subscription gets a snapshot later.
MAX_PENDING_BYTES: Final = 1024 * 1024


class SubscriptionOwner(Protocol):
    """The connection of a subscription."""

    #: Bytes of the messages that wait for a slow client.
    pending_bytes: int

    @property
    def slow(self) -> bool:
        """Whether too much data waits for the client."""

    def write(self, text: str) -> None:
        """Send a message of a channel to the client."""

    def fall_behind(self, subscription: CableSubscription) -> None:
        """Send a snapshot as soon as the client has read the data that waits."""

    def reject(self, subscription: CableSubscription) -> None:
        """End a subscription."""


@implementer(ICableSubscription)
class CableSubscription:
    """
    One subscription of a client.

    :param identifier: the text that names it.
    :param channel: the name of the channel.
    """

    def __init__(
        self,
        owner: SubscriptionOwner,
        identifier: str,
        channel: str,
        params: Mapping[str, Any],
        caller: ICableCaller,
    ) -> None:
        self._owner = owner
        self.identifier = identifier
        self.channel = channel
        self.params = params
        self.caller = caller
        self.closed = False
        #: The channel that listens for this subscription; None while there is none.
        self.joined: Any = None
        self.confirmed = False
        #: Whether a snapshot was begun, and no message was dropped since.
        self._live = False
        self._in_snapshot = False
        self._snapshot_bytes = 0
        self._pending: dict[str, str] = {}
        self._begin, self._end = messages.message_around(identifier)

    def send(self, message: Any, key: str = "") -> None:
        """Send a message."""
        if self._live and not self.closed:
            self.send_json(json.dumps(message, separators=(",", ":")), key)

    def send_json(self, text: str, key: str = "") -> None:
        """Send a message that is JSON already."""
        size = _size(text)
        if size > MAX_SNAPSHOT_BYTES:
            raise ValueError(f"a message of {size} bytes is too long")
        if self.closed or not self._live:
            return
        if self._in_snapshot:
            self._snapshot_bytes += size
            if self._snapshot_bytes > MAX_SNAPSHOT_BYTES:
                raise ValueError(
                    f"the snapshot has more than {MAX_SNAPSHOT_BYTES} bytes"
                )
            self._write(text)
            return
        self.flush()
        if not self._pending and not self._owner.slow:
            self._write(text)
        elif key and self._keep(key, text):
            return
        else:
            self.stop_messages()
            self._owner.fall_behind(self)

    def reject(self) -> None:
        """End the subscription."""
        if not self.closed:
            self._owner.reject(self)

    # Towards the connection

    def begin_snapshot(self) -> None:
        """Accept messages from now on, which belong to a snapshot."""
        self._drop_pending()
        self._live = self._in_snapshot = True
        self._snapshot_bytes = 0

    def end_snapshot(self) -> None:
        """Count messages from now on as changes."""
        self._in_snapshot = False

    def stop_messages(self) -> None:
        """Drop messages until the next snapshot."""
        self._live = self._in_snapshot = False
        self._drop_pending()

    def flush(self) -> None:
        """Send the latest messages that wait, until the client is slow again."""
        while self._pending and not self._owner.slow:
            key = next(iter(self._pending))
            text = self._pending.pop(key)
            self._owner.pending_bytes -= _size(text)
            self._write(text)

    def end(self) -> None:
        """Accept no more messages."""
        self.closed = True
        self.stop_messages()

    def _keep(self, key: str, text: str) -> bool:
        """Keep the latest message with a key; return False if too much waits."""
        before = self._pending.pop(key, "")
        self._owner.pending_bytes += _size(text) - _size(before)
        self._pending[key] = text
        return self._owner.pending_bytes <= MAX_PENDING_BYTES

    def _drop_pending(self) -> None:
        self._owner.pending_bytes -= sum(map(_size, self._pending.values()))
        self._pending.clear()

    def _write(self, text: str) -> None:
        self._owner.write(self._begin + text + self._end)


def _size(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
