"""Everything that the connections of one kas share: channels, limits, counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer
from zope.interface.exceptions import Invalid
from zope.interface.verify import verifyObject

from modules.action_cable.metrics import CableMetrics
from tunnel.api import ICable, IChannel, ISharedCount, IUsers
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.peer_budgets import PeerBudgets
from tunnel.toolkit.recent import Recent

__all__ = [
    "COMMANDS_AT_ONCE",
    "COMMANDS_PER_SECOND",
    "CableHub",
    "Subscribed",
]

#: Maximum number of remembered subscriptions that may resume, with 150 bytes each; the
#: oldest are forgotten first, and then get a snapshot 0.2 seconds earlier.
MAX_RESUMABLE: Final = 10_000

#: Number of commands of one user, on all connections, that kas handles at once, and per
#: second in the long run.  A page subscribes and resumes a few times when it opens.
COMMANDS_AT_ONCE, COMMANDS_PER_SECOND = 300, 20


class Subscribed(Protocol):
    """A connection, as the hub sees it."""

    def channel_changed(self, name: str) -> None:
        """Move the subscriptions to a channel that was replaced or withdrawn."""

    def channels(self) -> list[str]:
        """Return the name of the channel of each subscription."""


@implementer(ICable)
@attrs.define(eq=False)
class CableHub:
    """
    The channels of all modules, and the limits of connections.

    :ivar per_credential: maximum number of connections of one credential.
    :ivar together: connections by credential at the other workers; None without
        workers.
    :ivar time: returns the time of day.
    :ivar random: returns a number from 0 to 1.
    """

    users: IUsers
    clock: IReactorTime
    time: Callable[[], float]
    random: Callable[[], float]
    per_credential: int
    together: ISharedCount | None = None
    metrics: CableMetrics = attrs.field(factory=CableMetrics, init=False)
    connections: set[Subscribed] = attrs.field(factory=set, init=False)
    #: Subscriptions of clients that may come back: see `resumable`.
    _resumable: Recent[str, None] = attrs.field(
        factory=lambda: Recent(MAX_RESUMABLE), init=False
    )
    #: Budgets of commands: see `CableCaller.budget_owner`.
    commands: PeerBudgets[str] = attrs.field(init=False)
    _channels: dict[str, Any] = attrs.field(factory=dict, init=False)
    _by_credential: Counter[str] = attrs.field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self.metrics.connections = self.connections
        self.commands = PeerBudgets(
            self.clock, burst=COMMANDS_AT_ONCE, per_second=COMMANDS_PER_SECOND
        )

    # ICable

    def serve(self, name: str, channel: IChannel) -> Callable[[], None]:
        """Let clients subscribe to *channel* under *name*."""
        try:
            verifyObject(IChannel, channel)
        except Invalid as error:
            raise ValueError(
                f"the channel {name} is not an IChannel: {error}"
            ) from None
        self._set(name, channel)

        def withdraw() -> None:
            if self._channels.get(name) is channel:
                self._set(name, None)

        return withdraw

    def _set(self, name: str, channel: Any) -> None:
        self._channels[name] = channel
        for_each(
            tuple(self.connections),
            lambda one: one.channel_changed(name),
            "moving subscriptions to another channel",
        )

    # Connections

    def knows(self, name: str) -> bool:
        """Return whether a module serves the channel *name*, or served it before."""
        return name in self._channels

    def channel(self, name: str) -> Any:
        """Return a channel; None if no module serves it now."""
        return self._channels.get(name)

    def admit(self, key: str) -> bool:
        """
        Count a connection of a credential; return False if it has too many.

        :param key: see `CableCredential.key`.
        """
        elsewhere = 0 if self.together is None else self.together.elsewhere[key]
        if self._by_credential[key] + elsewhere >= self.per_credential:
            return False
        self._count(key, 1)
        return True

    def leave(self, key: str) -> None:
        """Count the end of a connection that was admitted."""
        self._count(key, -1)

    def _count(self, key: str, more: int) -> None:
        self._by_credential[key] += more
        count = self._by_credential[key]
        if not count:
            del self._by_credential[key]
        if self.together is not None:
            self.together.here(key, count)

    def resumable(self, key: str) -> bool:
        """
        Return whether a subscription existed before, so that its client may resume it.

        :param key: credential and identifier.
        """
        known = key in self._resumable
        self._resumable[key] = None
        return known

    def forget(self, key: str) -> None:
        """Forget a subscription, because its client has unsubscribed."""
        self._resumable.pop(key, None)
