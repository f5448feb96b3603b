"""One execution of a plan: the client and settings that its parts share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
from twisted.internet.interfaces import IReactorTime

from modules.gitops.agent.apply.backups import KeptStates, Replaced
from modules.gitops.agent.apply.ledger import Ledger
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import Manifest
from modules.gitops.agent.plan.plan import Plan, SourceSettings
from tunnel.api import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.toolkit.backoff import Backoff

__all__ = ["BUSY_FIRST", "BUSY_MOST", "BUSY_TIMES", "LOOK_FIRST", "Execution", "looks"]

#: Seconds between two checks of an object that agentk waits for: first and maximum.
LOOK_FIRST, LOOK_MOST = 0.25, 5.0

#: Backoff after a request that an overloaded API server rejected: first and maximum
#: seconds, and maximum number of attempts.
BUSY_FIRST, BUSY_MOST, BUSY_TIMES = 0.5, 8.0, 8


@attrs.frozen(eq=False)
class Execution:
    """
    One execution of a plan.

    :ivar now: returns the time in seconds since 1970.
    :ivar kept: stores the previous states of objects; None if no states are stored.
    """

    client: IKubernetesClient
    plan: Plan
    settings: SourceSettings
    ledger: Ledger
    clock: IReactorTime
    now: Callable[[], float]
    kept: KeptStates | None

    @property
    def inventory_id(self) -> str:
        """Id of the project's inventory."""
        return self.settings.inventory_id

    async def resource_of(
        self, found: Manifest | KubernetesObject
    ) -> KubernetesResource:
        """
        Return the resource of an object.

        :raises CallError: NOT_FOUND if the API server does not serve the kind of the
            object; another status if the API server is unavailable.
        """
        if isinstance(found, Manifest):
            return await self.client.resource(found.api_version, found.key.kind)
        return await self.client.resource(found["apiVersion"], found["kind"])

    async def live(self, manifest: Manifest) -> KubernetesObject | None:
        """
        Return the live object of a manifest; None if the object does not exist.

        :raises CallError: as `resource_of`.
        """
        resource = await self.resource_of(manifest)
        return await live_object(self.client, resource, manifest.key)

    async def keep(
        self, why: Replaced, objects: Iterable[KubernetesObject | None]
    ) -> None:
        """
        Store the states of objects that will be replaced.

        :raises Superseded: if another agentk leads.
        :raises CallError: if the states cannot be stored.
        """
        if self.kept is not None:
            self.ledger.check_leads()
            await self.kept.keep(why, (one for one in objects if one is not None))


def looks() -> Backoff:
    """Return the backoff between checks of an object that agentk waits for."""
    return Backoff(lambda: 1.0, LOOK_FIRST, LOOK_MOST)
