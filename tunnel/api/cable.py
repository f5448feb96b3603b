"""Channels of ActionCable: subscriptions of browsers to what modules publish."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
from twisted.internet.interfaces import IAddress
from zope.interface import Attribute, Interface

from tunnel.api.users import Access, Reach

__all__ = [
    "CableStarted",
    "ICable",
    "ICableCaller",
    "ICableSubscription",
    "IChannel",
]


class ICableCaller(Interface):
    """The client of one connection, and its rights."""

    peer_address: IAddress = Attribute("The address of the client.")

    def authorize(agent: str) -> Awaitable[Access]:
        """
        Return the rights of the client's credential at an agent.

        kas closes the connection if this credential is revoked.

        :param agent: id or name of the agent.
        :raises tunnel.errors.CallError: see `IUsers.authorize`; a channel may let it
            pass.
        """

    def reach() -> Awaitable[Reach]:
        """
        Return the agents that the client's credential gives access to.

        :raises tunnel.errors.CallError: see `IUsers.reach`; a channel may let it pass.
        """


class ICableSubscription(Interface):
    """One subscription of a client."""

    channel: str = Attribute("The name of the channel.")
    params: Mapping[str, Any] = Attribute(
        "The parameters of the client, as it wrote them: any JSON."
    )
    caller: ICableCaller = Attribute("The client.")
    closed: bool = Attribute("Whether the subscription has ended.")

    def send(message: Any, key: str = "") -> None:
        """
        Send a message, which is anything that becomes JSON.

        kas drops messages before the first snapshot, because the snapshot contains
        their content.  If the client reads too slowly, the latest message with *key*
        replaces earlier ones; a message without a key is dropped, and kas requests
        another snapshot as soon as the client has read the rest.

        :raises ValueError: the message is longer than 16 MiB.
        """

    def send_json(text: str, key: str = "") -> None:
        """
        Send a message that is JSON already, as several subscriptions get the same.
        """

    def reject() -> None:
        """
        End the subscription, so that the client forgets it.
        """


class IChannel(Interface):
    """
    Implementation of a channel, for the subscriptions of all clients.

    kas calls the methods for one connection strictly in the order of the client's
    commands, and waits for each call up to ten seconds.  A `tunnel.errors.CallError`
    with status UNAUTHENTICATED ends the connection; any other exception ends the
    subscription, except that `perform` may fail.
    """

    def subscribe(subscription: ICableSubscription) -> Awaitable[None] | None:
        """
        Check the rights of the client, and begin to listen.

        kas confirms the subscription afterwards, and then requests a snapshot.

        :raises tunnel.errors.CallError: the client may not subscribe.
        """

    def send_snapshot(subscription: ICableSubscription) -> Awaitable[None] | None:
        """
        Send the current state, in one or several messages, at most 16 MiB.

        Called after each confirmation, also of a repeated ``subscribe``, and after
        messages were dropped.
        """

    def resume(
        subscription: ICableSubscription, data: Mapping[str, Any]
    ) -> Awaitable[None] | None:
        """
        Send the changes since the state that the client has, or a snapshot; called in
        place of `send_snapshot` if the client said ``perform("resume", data)``.
        """

    def perform(
        subscription: ICableSubscription, action: str, data: Mapping[str, Any]
    ) -> Awaitable[None] | None:
        """Handle ``perform(action, data)`` of a client; errors are logged only."""

    def unsubscribe(subscription: ICableSubscription) -> None:
        """
        Forget a subscription that has ended for any reason; called once for each call
        of `subscribe`, also if that has failed.
        """


class ICable(Interface):
    """Capability of the module ``action_cable``: see `ICapabilities`."""

    def serve(name: str, channel: IChannel) -> Callable[[], None]:
        """
        Let clients subscribe to *channel* under *name*, such as ``FleetChannel``.

        Subscriptions to an earlier channel with this name move to *channel*, which
        sends them a snapshot.

        :return: a function that withdraws the channel; call it when the module stops.
            Subscriptions then wait for the next channel with this name.
        """


@attrs.frozen
class CableStarted:
    """In kas: `ICable` is available, for the first time or after a restart."""
