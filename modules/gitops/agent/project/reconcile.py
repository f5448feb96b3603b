"""Applies the files of a commit to the cluster, once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from hashlib import sha256

import attrs
from twisted.internet.interfaces import IReactorTime

from modules.gitops.agent.apply.act import Act
from modules.gitops.agent.apply.backups import KeptStates
from modules.gitops.agent.apply.ledger import Superseded
from modules.gitops.agent.apply.outcome import Outcome, Result
from modules.gitops.agent.apply.pruner import Pruning
from modules.gitops.agent.apply.settled import Settled
from modules.gitops.agent.inventory.claims import ClaimsOf, no_claims
from modules.gitops.agent.inventory.inventory import InventoryStore
from modules.gitops.agent.objects.differences import AppliedVersion
from modules.gitops.agent.objects.manifests import (
    Manifest,
    ObjectKey,
    Source,
    SourceProblem,
)
from modules.gitops.agent.plan.order import order_of
from modules.gitops.agent.plan.plan import (
    Given,
    Plan,
    SourceSettings,
    Verb,
    make_plan,
    nothing_given,
    plan_some,
)
from modules.gitops.agent.plan.resolve import resolve
from modules.gitops.agent.source.threads import COMMIT_THREADS, TextThreads
from tunnel.api import IKubernetesClient
from tunnel.errors import CallError, Status

__all__ = [
    "Reconciler",
    "Report",
]

#: Seconds that a repair waits for objects that others need to become current.
REPAIR_SECONDS = 60.0


@attrs.frozen(eq=False)
class Report:
    """
    The result of a commit.

    :ivar problems: why agentk applied nothing of it; empty if it did.
    :ivar held: see `Plan.held`.
    """

    commit: str
    problems: tuple[SourceProblem, ...] = ()
    results: Mapping[ObjectKey, Result] = attrs.field(factory=dict)
    held: tuple[ObjectKey, ...] = ()

    @property
    def release(self) -> str:
        """
        A name for the deletes of *held* with this commit; empty if none is held.

        It is long enough that two commits never have the same name.
        """
        names = "\0".join([self.commit, *(str(key) for key in sorted(self.held))])
        return sha256(names.encode()).hexdigest()[:40] if self.held else ""

    @property
    def failed(self) -> list[Result]:
        """Objects that are not as Git has them."""
        bad = (Outcome.FAILED, Outcome.SKIPPED)
        return [one for one in self.results.values() if one.outcome in bad]

    @property
    def blocked(self) -> list[Result]:
        """Objects that a prune guard keeps."""
        found = self.results.values()
        return [one for one in found if one.outcome is Outcome.BLOCKED]


@attrs.define(eq=False, kw_only=True)
class Reconciler:
    """
    An engine that brings the cluster to the state of one source.

    :param leads: called before each change; tells whether this agentk may change
        anything.
    :param now: returns the time in seconds since 1970.
    :param planned: called with each plan before it is applied.
    :param applied: called with the new state of each applied object.
    :param settled: see `Act`, also for *kept*.
    :param leaves: tells whether an object stays as other clients have changed it.
    :param stays: see `make_plan`, also for *given* and *claims*.
    :param prunes: see `Act`, also for *pruned*.
    :param threads: compute the order of a commit's objects.
    """

    client: IKubernetesClient
    store: InventoryStore
    settings: SourceSettings
    leads: Callable[[], bool]
    clock: IReactorTime
    now: Callable[[], float]
    planned: Callable[[Plan], None] = lambda plan: None
    applied: Callable[[Manifest, AppliedVersion], None] = lambda manifest, live: None
    settled: dict[ObjectKey, Settled] = attrs.field(factory=dict)
    kept: KeptStates | None = None
    leaves: Callable[[Manifest], bool] = lambda manifest: False
    stays: Callable[[ObjectKey], str] = lambda key: ""
    given: Given = nothing_given
    claims: ClaimsOf = no_claims
    prunes: Callable[[Pruning], None] = lambda pruning: None
    pruned: Callable[[str, ObjectKey], None] = lambda commit, key: None
    threads: TextThreads = attrs.field(factory=lambda: TextThreads(COMMIT_THREADS))

    async def plan(self, commit: str, source: Source) -> Plan | Report:
        """
        Return the plan of a commit, or a report of the reasons why nothing would be
        applied.

        :raises CallError: the API server is unavailable.
        """
        if source.problems:
            return Report(commit, source.problems)
        resolved = await resolve(
            self.client, source.manifests, self.settings.default_namespace
        )
        order = await self.threads.run(order_of, resolved.manifests)
        if problems := (*resolved.problems, *order.problems):
            return Report(commit, problems)
        inventory = await self.store.read()
        plan = await make_plan(
            self.client,
            commit,
            resolved,
            order,
            inventory,
            self.settings,
            self.stays,
            self.given,
            self.claims,
        )
        return self._without_left(plan)

    async def run(self, commit: str, source: Source) -> Report:
        """
        Apply a commit and return the report.

        :raises Superseded: another agentk leads, or an operator changed the orders.
        :raises CallError: the API server is unavailable, or the inventory cannot be
            written.
        """
        try:
            plan = await self.plan(commit, source)
        except CallError as error:
            raise _superseded(error) from None
        if isinstance(plan, Report):
            return plan
        act = await self._act(plan, self.settings)
        return Report(
            commit,
            results=act.results,
            held=plan.held,
        )

    def _without_left(self, plan: Plan) -> Plan:
        wanted = {
            key: attrs.evolve(one, verb=Verb.LEAVE)
            if one.verb in (Verb.CREATE, Verb.APPLY)
            and one.manifest is not None
            and self.leaves(one.manifest)
            else one
            for key, one in plan.wanted.items()
        }
        return attrs.evolve(plan, wanted=wanted)

    async def repair(
        self,
        commit: str,
        manifests: Collection[Manifest],
        only: Collection[ObjectKey] = (),
    ) -> Mapping[ObjectKey, Result]:
        """
        Apply objects of a commit again that changed after it was applied.

        The project owned the changed fields, so it takes them from any manager.

        :param only: keys of objects of *manifests*, as in the cluster; empty for all.
        :raises Superseded: as `run`.
        :raises CallError: as `run`.
        """
        resolved = await resolve(
            self.client, manifests, self.settings.default_namespace
        )
        if only:
            some = tuple(one for one in resolved.manifests if one.key in only)
            resolved = attrs.evolve(resolved, manifests=some)
        try:
            inventory = await self.store.read()
        except CallError as error:
            raise _superseded(error) from None
        plan = await plan_some(
            self.client, commit, resolved, inventory, self.settings, self.given
        )
        timeout = min(self.settings.reconcile_timeout, REPAIR_SECONDS)
        settings = attrs.evolve(
            self.settings,
            force=True,
            reconcile_timeout=timeout,
            awaits_all=False,
            only_reports=False,
            repairs=True,
        )
        act = await self._act(plan, settings)
        return act.results

    async def _act(self, plan: Plan, settings: SourceSettings) -> Act:
        self.planned(plan)
        act = Act(
            self.client,
            plan,
            settings,
            self.store,
            self.leads,
            self.clock,
            self.now,
            self.applied,
            self.settled,
            self.kept,
            self.stays,
            self.prunes,
            partial(self.pruned, plan.commit),
        )
        await act.run()
        return act


def _superseded(error: CallError) -> Exception:
    """Return the exception for an inventory that cannot be read."""
    return Superseded() if error.status is Status.ABORTED else error
