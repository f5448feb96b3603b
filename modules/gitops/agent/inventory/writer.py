"""
The agentk that last wrote an inventory: its agent, and its Lease.

All agentk of one agent share one Lease, so only one of them leads.  But two
installations of kas may each have an agent with the same id in one cluster.  Their
agentk do not know each other, and each would prune the other's objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

import attrs

from modules.gitops.agent.inventory.orders import LastPass, OrderStore
from tunnel.api import (
    IAgentModuleApi,
    IKubernetesClient,
    KubernetesResource,
)
from tunnel.errors import CallError, Status

__all__ = ["InventoryWriter"]

_LEASES = KubernetesResource("coordination.k8s.io", "v1", "Lease", "leases", True)

#: Maximum seconds that the clock of another agentk's node may be behind.
CLOCKS_DIFFER = 60.0

#: Maximum seconds of a Lease: users may write any number into the Leases of their
#: namespaces, and agentk's Leases last for less than a minute.
MAX_LEASE = 3600.0

#: Pattern of a mark ``agent@namespace/name`` as agentk writes it; other users may have
#: written any text in place of a mark.
_MARK = re.compile(r"[^@/]{0,200}@([-a-z0-9]{1,63})/([-.a-z0-9]{1,253})")


@attrs.frozen
class InventoryWriter:
    """
    Identity of this agentk as a writer of inventories.

    :param client: acts as agentk.
    :param agent: the name of the agent.
    :param lease: ``namespace/name`` of this agentk's Lease.
    :param now: returns the time in seconds since 1970.
    """

    client: IKubernetesClient
    agent: str
    lease: str
    now: Callable[[], float]

    @classmethod
    def of(cls, api: IAgentModuleApi, now: Callable[[], float]) -> InventoryWriter:
        """Return the identity of the agentk that *api* belongs to."""
        return cls(
            api.kubernetes.for_records(), api.agent_name, api.leadership.lease, now
        )

    @property
    def mark(self) -> str:
        """Mark of this agentk."""
        return f"{self.agent}@{self.lease}"

    @property
    def namespace(self) -> str:
        """Namespace of this agentk's Lease; empty without a Lease."""
        return self.lease.partition("/")[0] if "/" in self.lease else ""

    async def wrote(self, inventory_id: str, namespace: str) -> bool:
        """
        Return whether this agentk wrote the inventory of a project, according to the
        Secret with the orders of the project.

        :param namespace: agentk's own Namespace.
        :raises CallError: as `OrderStore.read`, unless agentk did not write the Secret.
        """
        try:
            last = (await OrderStore(self.client, inventory_id, namespace).read()).last
        except CallError as error:
            if error.status is not Status.FAILED_PRECONDITION:
                raise
            return False
        mark = self.mark if self.lease else ""
        return last != LastPass() and last.writer == mark

    async def leads_elsewhere(self, mark: str) -> bool:
        """
        Return whether the agentk with *mark* leads with a Lease other than this
        agentk's.

        Return False if the Lease in *mark* is this agentk's, or has another name: an
        agentk that writes the same inventory has the same agent id, and thus a Lease of
        the same name in another Namespace.  A Lease that this agentk may not read
        counts as missing; in this case deletes are held.

        :raises CallError: if the API server is unavailable.
        """
        found = _MARK.fullmatch(mark)
        if found is None or mark.endswith(f"@{self.lease}"):
            return False
        namespace, name = found.groups()
        if name != self.lease.rpartition("/")[2]:
            return False
        try:
            lease = await self.client.get(_LEASES, name, namespace)
        except CallError as error:
            if error.status in (Status.NOT_FOUND, Status.PERMISSION_DENIED):
                return False
            raise
        spec = lease.get("spec") or {}
        try:
            renewed = datetime.fromisoformat(str(spec.get("renewTime"))).timestamp()
            seconds = min(float(spec.get("leaseDurationSeconds") or 0), MAX_LEASE)
        except ValueError:
            return False
        held = bool(spec.get("holderIdentity"))
        return held and self.now() < renewed + seconds + CLOCKS_DIFFER
