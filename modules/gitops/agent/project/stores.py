"""Access to the records of one project in the cluster, and to the records of others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import attrs

from modules.gitops.agent.apply.backups import KeptStates
from modules.gitops.agent.inventory.claims import Claims, Waits
from modules.gitops.agent.inventory.identity import inventory_id
from modules.gitops.agent.inventory.inventory import InventoryStore
from modules.gitops.agent.inventory.orders import OrderStore
from modules.gitops.agent.inventory.writer import InventoryWriter
from modules.gitops.agent.source.snapshot import Snapshot
from modules.gitops.wire.settings import ManifestProject
from tunnel.api import IAgentModuleApi

__all__ = ["ProjectStores"]


@attrs.frozen(eq=False)
class ProjectStores:
    """
    Access to the inventory, orders and backups of one project, which agentk's own
    account writes.

    :param inventories: the Namespace of all inventories; empty for agentk's own.
    :param now: returns the time in seconds since 1970.
    """

    _api: IAgentModuleApi
    _settings: ManifestProject
    _inventories: str
    _now: Callable[[], float]
    #: Namespaces whose former inventory stays; the project logged that.
    _left: set[str] = attrs.field(factory=set, init=False)

    def id_of(self, snapshot: Snapshot) -> str:
        """Return the id of the inventory for commits of the snapshot's repository."""
        return inventory_id(
            self._api.agent_id,
            snapshot.project_id,
            snapshot.project,
            self._settings.name,
        )

    def orders(self, snapshot: Snapshot) -> OrderStore:
        """Return the orders of operators."""
        client = self._api.kubernetes.for_records()
        return OrderStore(client, self.id_of(snapshot), self._own_namespace)

    def inventory(self, snapshot: Snapshot, orders: OrderStore) -> InventoryStore:
        """Return the inventory."""
        return InventoryStore(
            self._api.kubernetes.for_records(),
            self.id_of(snapshot),
            self._inventories or self._own_namespace,
            (self._own_namespace, self._settings.default_namespace),
            self._writer,
            orders,
            clock=self._api.clock,
            left=self._left,
        )

    def backups(self, snapshot: Snapshot) -> KeptStates:
        """Return the store for states of objects before agentk changed them."""
        return KeptStates(
            self._api.kubernetes.for_records(),
            self.id_of(snapshot),
            self._own_namespace,
            self._now,
            self._settings.keep_states,
        )

    def claims(
        self, snapshot: Snapshot, waits: Waits, siblings: Collection[str]
    ) -> Claims:
        """
        Return the search for claims of other agents, for one pass.

        :param siblings: the inventories of the other projects of this agentk.
        """
        orders = self.orders(snapshot)

        async def selected() -> str:
            return (await orders.known()).last.selection

        return Claims(
            self._api.kubernetes.for_records(),
            self.id_of(snapshot),
            self._writer.mark,
            self._inventories or self._own_namespace,
            snapshot.followed,
            snapshot.commit,
            waits,
            self._api.clock.seconds(),
            self._settings.selection,
            siblings,
            partial(self._writer.wrote, namespace=self._own_namespace),
            selected,
        )

    @property
    def mark(self) -> str:
        """Mark of this agentk as a writer of inventories."""
        return self._writer.mark if self._writer.lease else ""

    @property
    def _own_namespace(self) -> str:
        """Namespace of agentk itself."""
        return self._api.kubernetes.own_namespace.name

    @property
    def _writer(self) -> InventoryWriter:
        """Return this agentk as a writer of inventories."""
        return InventoryWriter.of(self._api, self._now)
