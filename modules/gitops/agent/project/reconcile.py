"""Reconciliation: applies the files of a commit to the cluster, once."""

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
from modules.gitops.agent.inventory.inventory import InventoryStore
from modules.gitops.agent.objects.differences import AppliedVersion
from modules.gitops.agent.objects.manifests import (
    Manifest,
    ObjectKey,
    Source,
    SourceProblem,
)
from modules.gitops.agent.objects.owner_annotations import owner_of
from modules.gitops.agent.plan.order import order_of
from modules.gitops.agent.plan.plan import (
    OtherSources,
    Plan,
    SourceSettings,
    Verb,
    make_plan,
    plan_some,
)
from modules.gitops.agent.plan.resolve import resolve
from modules.gitops.agent.source.threads import COMMIT_THREADS, TextThreads
from tunnel.api import IKubernetesClient
from tunnel.errors import CallError, Status

__all__ = [
    "Pass",
    "Reconciler",
    "Report",
]

#: Seconds that a repair waits for needed objects to become current.
REPAIR_SECONDS = 60.0


@attrs.frozen(eq=False)
class Report:
    """
    Result of applying a commit.

    :ivar problems: why agentk did not apply the commit; empty if agentk applied it.
    :ivar held: see `Plan.held`.
    :ivar holds: objects of *held* that the orders record.  Objects without a signature
        in the inventory are left out: they stay held anyway, and other clients could
        add any number of them.
    :ivar released: objects whose deletes need no approval any more, because the objects
        are in Git or no longer belong to the source.
    :ivar uids: the uids of the objects that were removed from Git and existed when the
        plan was made.
    :ivar is_lost: see `Inventory`.
    :ivar unproven: see `Plan.unproven`.
    :ivar selection: see `Inventory.selection`.
    """

    commit: str
    problems: tuple[SourceProblem, ...] = ()
    results: Mapping[ObjectKey, Result] = attrs.field(factory=dict)
    held: tuple[ObjectKey, ...] = ()
    holds: tuple[ObjectKey, ...] = ()
    released: tuple[ObjectKey, ...] = ()
    uids: Mapping[ObjectKey, str] = attrs.field(factory=dict)
    is_lost: bool = False
    unproven: frozenset[ObjectKey] = frozenset()
    selection: str = ""

    @property
    def held_uids(self) -> dict[ObjectKey, str]:
        """The uid of each object of *held*."""
        return {key: self.uids.get(key, "") for key in self.held}

    @property
    def release(self) -> str:
        """
        Name for the deletes of *held* with this commit; empty if none is held.

        It is long enough that two commits never have the same name.  An object that was
        recreated has another uid, and changes the name.
        """
        held = sorted(self.held_uids.items())
        names = "\0".join([self.commit, *(f"{key} {uid}" for key, uid in held)])
        return sha256(names.encode()).hexdigest()[:40] if held else ""

    @property
    def failed(self) -> list[Result]:
        """Results of the objects that still differ from Git."""
        bad = (Outcome.FAILED, Outcome.SKIPPED)
        return [one for one in self.results.values() if one.outcome in bad]

    @property
    def blocked(self) -> list[Result]:
        """Results of the objects that a prune guard keeps."""
        found = self.results.values()
        return [one for one in found if one.outcome is Outcome.BLOCKED]

    @property
    def is_complete(self) -> bool:
        """
        Whether all objects are as in Git, except unproven ones.

        Other clients can add any number of them, and must not delay other sources.
        """
        left = {one.key for one in self.blocked}
        return not (self.problems or self.failed or left - self.unproven)


@attrs.frozen(eq=False, kw_only=True)
class Pass:
    """
    Inputs of one comparison of a source with the cluster.

    :ivar kept: as for `Act`.
    :ivar threads: the threads that compute the order of a commit's objects.
    """

    store: InventoryStore
    settings: SourceSettings
    kept: KeptStates | None = None
    others: OtherSources = attrs.field(factory=OtherSources)
    threads: TextThreads = attrs.field(factory=lambda: TextThreads(COMMIT_THREADS))


@attrs.define(eq=False, kw_only=True)
class Reconciler:
    """
    Engine of one project, which brings the cluster to the state of its source.

    :param leads: called before each change; returns whether this agentk may make
        changes.
    :param now: returns the time in seconds since 1970.
    :param planned: called with each plan before it is applied, and with the id of its
        inventory.
    :param applied: called with the new state of each applied object.
    :param leaves: returns whether the changes that other clients made to an object
        stay.
    :param prunes: see `Act`.
    :param pruned: called with the plan and each object that was deleted because it was
        removed from Git, and its uid.
    :ivar settled: see `Act`.
    """

    client: IKubernetesClient
    leads: Callable[[], bool]
    clock: IReactorTime
    now: Callable[[], float]
    planned: Callable[[Plan, str], None] = lambda plan, inventory_id: None
    applied: Callable[[Manifest, AppliedVersion], None] = lambda manifest, live: None
    leaves: Callable[[Manifest], bool] = lambda manifest: False
    prunes: Callable[[Pruning], None] = lambda pruning: None
    pruned: Callable[[Plan, ObjectKey, str], None] = lambda plan, key, uid: None
    settled: dict[ObjectKey, Settled] = attrs.field(factory=dict, init=False)

    async def plan(self, of: Pass, commit: str, source: Source) -> Plan | Report:
        """
        Return the plan of a commit, or a report of the reasons why agentk would not
        apply it.

        :raises CallError: if the API server is unavailable.
        """
        if source.problems:
            return Report(commit, source.problems)
        resolved = await resolve(
            self.client, source.manifests, of.settings.default_namespace
        )
        order = await of.threads.run(order_of, resolved.manifests)
        if problems := (*resolved.problems, *order.problems):
            return Report(commit, problems)
        inventory = await of.store.read()
        plan = await make_plan(
            self.client,
            commit,
            resolved,
            order,
            inventory,
            of.settings,
            of.others,
        )
        return self._without_left(plan)

    async def run(self, of: Pass, commit: str, source: Source) -> Report:
        """
        Apply a commit and return the report.

        :raises Superseded: if another agentk leads, or an operator changed the orders.
        :raises CallError: if the API server is unavailable, or the inventory cannot be
            written.
        """
        try:
            plan = await self.plan(of, commit, source)
        except CallError as error:
            raise _superseded(error) from None
        if isinstance(plan, Report):
            return plan
        # Also with ``prune: false``, which may change.
        inventory = plan.inventory
        holds = tuple(
            key
            for key, action in plan.leaving.items()
            if action.held
            and action.verb is Verb.BLOCK
            and inventory.entries[key].is_signed
            and not inventory.approval.covers(commit, key, action.uid)
        )
        begins = tuple(
            key
            for key, action in plan.leaving.items()
            if action.verb is Verb.PRUNE
            and not inventory.approval.covers(commit, key, action.uid)
        )
        try:
            # Before any change, because this execution may be interrupted at each.
            await of.store.record(commit, holds, begins, inventory.is_lost)
        except CallError as error:
            raise _superseded(error) from None
        act = await self._act(of, plan, of.settings)
        return Report(
            commit,
            results=act.results,
            held=plan.held,
            holds=holds,
            released=_released(plan, act.results, of.settings),
            uids={key: one.uid for key, one in plan.leaving.items() if one.uid},
            is_lost=plan.inventory.is_lost,
            unproven=plan.unproven,
            selection=act.selection,
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
        of: Pass,
        commit: str,
        manifests: Collection[Manifest],
        only: Collection[ObjectKey] = (),
    ) -> Mapping[ObjectKey, Result]:
        """
        Apply again the objects of a commit that were changed after the commit was
        applied.

        The project owned the changed fields, so it takes them from any manager.

        :param only: keys, as in the cluster, of the *manifests* to apply; empty for all
            of them.
        :raises Superseded: as `run`.
        :raises CallError: as `run`.
        """
        resolved = await resolve(self.client, manifests, of.settings.default_namespace)
        if only:
            some = tuple(one for one in resolved.manifests if one.key in only)
            resolved = attrs.evolve(resolved, manifests=some)
        try:
            inventory = await of.store.read()
        except CallError as error:
            raise _superseded(error) from None
        plan = await plan_some(
            self.client, commit, resolved, inventory, of.settings, of.others
        )
        timeout = min(of.settings.reconcile_timeout, REPAIR_SECONDS)
        settings = attrs.evolve(
            of.settings,
            force=True,
            reconcile_timeout=timeout,
            awaits_all=False,
            only_reports=False,
            repairs=True,
        )
        act = await self._act(of, plan, settings)
        return act.results

    async def _act(self, of: Pass, plan: Plan, settings: SourceSettings) -> Act:
        self.planned(plan, settings.inventory_id)
        act = Act(
            self.client,
            plan,
            settings,
            of.store,
            self.leads,
            self.clock,
            self.now,
            self.applied,
            self.settled,
            of.kept,
            of.others.stays,
            self.prunes,
            partial(self.pruned, plan),
        )
        await act.run()
        return act


def _released(
    plan: Plan, results: Mapping[ObjectKey, Result], settings: SourceSettings
) -> tuple[ObjectKey, ...]:
    """
    Return the objects whose deletes need no approval any more.

    An object whose entry was only forgotten, for instance because the entry has another
    uid, is left out: other clients may have written the entry.  So is an object outside
    of the scope, which may grow again.
    """
    done = (Outcome.PRUNED, Outcome.DETACHED)
    return (
        *plan.wanted,
        *(
            key
            for key, action in plan.leaving.items()
            if results[key].outcome in done
            or (
                results[key].outcome is Outcome.FORGOTTEN
                and settings.scope.contains(key.namespace)
                and (
                    action.live is None
                    or owner_of(action.live) != settings.inventory_id
                )
            )
        ),
    )


def _superseded(error: CallError) -> Exception:
    """
    Return `Superseded` if *error* means that the inventory has changed; otherwise
    *error*.
    """
    return Superseded() if error.status is Status.ABORTED else error
