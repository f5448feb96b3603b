"""Changes of live data, for modules of kas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from zope.interface import Interface

__all__ = ["ClusterRowsStarted", "IClusterRows", "IRowFollower", "PublishingAgent"]


@attrs.frozen
class PublishingAgent:
    """An agent that publishes its rows to this kas."""

    agent_id: str
    agent_name: str


class IRowFollower(Interface):
    """
    A follower of rows, as `IClusterRows.follow` takes it.

    Its methods must not wait.  Rows are JSON objects with the columns of the view, and
    with ``cluster``, ``group``, ``kind``, ``namespace`` and ``name``.
    """

    def began(agent: PublishingAgent, views: Collection[str]) -> None:
        """Handle the first message of an agent, which has these views."""

    def changed(
        agent: PublishingAgent,
        view: str,
        put: Mapping[str, Mapping[str, Any]],
        deleted: Collection[str],
    ) -> None:
        """Handle new and changed rows by key, and the keys of deleted rows."""

    def replaced(agent: PublishingAgent, view: str) -> None:
        """Handle new rows of a whole view; `IClusterRows.read` returns them."""

    def ended(agent: PublishingAgent) -> None:
        """Handle the end: the agent is offline, or publishes to another kas."""


class IClusterRows(Interface):
    """
    In kas: rows of live data, a capability of the module ``cluster_data``.

    Nobody's rights are reviewed: a module that shows the rows to users decides who may
    see them.
    """

    def follow(views: Collection[str], follower: IRowFollower) -> Callable[[], None]:
        """
        Call *follower* for each agent that publishes to this process, for those
        that publish already as well, and return a function that ends this.

        Agents send changes of these views without delay.
        """

    def read(
        agent: PublishingAgent, view: str
    ) -> Deferred[Mapping[str, Mapping[str, Any]] | None]:
        """
        Return all rows of a view by key; None if it has more than 5000 rows.

        The Deferred fails with a `tunnel.errors.CallError` if the rows cannot be read
        now.
        """


@attrs.frozen
class ClusterRowsStarted:
    """
    In kas: `IClusterRows` is available, for the first time or after a restart.
    """
