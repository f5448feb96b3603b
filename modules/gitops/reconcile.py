"""From the files of a commit to the cluster, once: the one way that there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThread

from modules.gitops.act import Act, Outcome, Result
from modules.gitops.inventory import InventoryStore
from modules.gitops.manifests import ObjectKey, Source, SourceProblem, read_source
from modules.gitops.order import order_of
from modules.gitops.plan import Plan, SourceSettings, make_plan
from modules.gitops.resolve import resolve
from modules.gitops.snapshot import Snapshot
from tunnel.interfaces import IKubernetesClient

__all__ = ["Reconciler", "Report", "read_snapshot"]


@attrs.frozen(eq=False)
class Report:
    """
    What became of a commit.

    :ivar problems: why nothing of it was applied; nothing: it was.
    :ivar release: see `Plan.release`; it is written into *inventory_namespace*.
    """

    commit: str
    problems: tuple[SourceProblem, ...] = ()
    results: Mapping[ObjectKey, Result] = attrs.field(factory=dict)
    release: str = ""
    inventory_namespace: str = ""

    @property
    def failed(self) -> list[Result]:
        """Objects that are not as Git has them."""
        bad = (Outcome.FAILED, Outcome.SKIPPED)
        return [one for one in self.results.values() if one.outcome in bad]

    @property
    def blocked(self) -> list[Result]:
        """Objects that a brake keeps."""
        found = self.results.values()
        return [one for one in found if one.outcome is Outcome.BLOCKED]


async def read_snapshot(snapshot: Snapshot) -> Source:
    """The objects of a commit, read beside the reactor."""
    return await deferToThread(read_source, snapshot.files)


@attrs.define(eq=False, kw_only=True)
class Reconciler:
    """
    Makes the cluster what one source says.

    :param leads: whether this agentk may change anything; asked before each change.
    :param now: seconds since 1970.
    """

    client: IKubernetesClient
    store: InventoryStore
    settings: SourceSettings
    leads: Callable[[], bool]
    clock: IReactorTime
    now: Callable[[], float]

    async def plan(self, commit: str, source: Source) -> Plan | Report:
        """
        What would be done; a report where it is nothing, and why.

        :raises CallError: the cluster cannot be asked now.
        """
        if source.problems:
            return Report(commit, source.problems)
        resolved = await resolve(
            self.client, source.manifests, self.settings.default_namespace
        )
        order = await deferToThread(order_of, resolved.manifests)
        if problems := (*resolved.problems, *order.problems):
            return Report(commit, problems)
        inventory = await self.store.read()
        return await make_plan(
            self.client, commit, resolved, order, inventory, self.settings
        )

    async def run(self, commit: str, source: Source) -> Report:
        """
        Do it.

        :raises Superseded: another agentk leads.
        :raises CallError: the cluster cannot be asked, or the inventory not written.
        """
        plan = await self.plan(commit, source)
        if isinstance(plan, Report):
            return plan
        act = Act(
            self.client,
            plan,
            self.settings,
            self.store,
            self.leads,
            self.clock,
            self.now,
        )
        await act.run()
        return Report(
            commit,
            results=act.results,
            release=plan.release,
            inventory_namespace=self.store.namespace,
        )
