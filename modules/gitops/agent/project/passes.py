"""Passes of a project: each compares the desired commit with the cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Literal

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.agent.apply.ledger import Superseded
from modules.gitops.agent.apply.outcome import Outcome, Result
from modules.gitops.agent.apply.pruner import Pruning
from modules.gitops.agent.drift.drift import Drifts
from modules.gitops.agent.inventory.inventory import InventoryStore
from modules.gitops.agent.inventory.orders import (
    AppliedCommit,
    LastPass,
    Orders,
    OrderStore,
)
from modules.gitops.agent.objects.differences import AppliedVersion
from modules.gitops.agent.objects.manifests import Manifest, ObjectKey, Source
from modules.gitops.agent.plan.plan import OtherSources, Plan, SourceSettings
from modules.gitops.agent.project.context import ProjectContext
from modules.gitops.agent.project.dependencies import Dependencies
from modules.gitops.agent.project.desired import DesiredCommits, UnreadablePin
from modules.gitops.agent.project.explanations import (
    LOST,
    how_to_release,
    why_nothing_was_done,
)
from modules.gitops.agent.project.journal import Journal, counted
from modules.gitops.agent.project.reconcile import Pass, Reconciler, Report
from modules.gitops.agent.project.stores import ProjectStores
from modules.gitops.agent.project.transfers import Transfers
from modules.gitops.agent.source.snapshot import Snapshot
from modules.gitops.wire.settings import ManifestProject
from tunnel.api import IKubernetesClient
from tunnel.errors import CallError
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.interruptible import Interruptible

__all__ = ["AGAIN", "UNKNOWN", "WATCHED_AGAIN", "Passes"]

#: Seconds before agentk retries a failed commit: minimum and maximum of the backoff.
TRY_FIRST, TRY_MOST = 10.0, 60.0

#: Minimum seconds between two passes that run because a wait for another agent has
#: ended.
LOOK_SOONEST = 1.0

#: Maximum seconds until all objects are applied again, which repairs their drift: if
#: agentk has no watches, and if watches detect drift when it happens.
AGAIN, WATCHED_AGAIN = 300.0, 3600.0

#: Seconds of one pause without work.
REST = 3600.0

#: Number of passes in a row that another client interrupted, from which the status
#: shows this.
MAX_OVERTAKEN = 5
OVERTAKEN = (
    "another client changes the inventory each time before agentk can write it: find "
    "the client in managedFields of the ConfigMap, and remove its permission"
)

_PROPAGATION: Mapping[str, Literal["Background", "Foreground", "Orphan"]] = {
    "background": "Background",
    "foreground": "Foreground",
    "orphan": "Orphan",
}

#: Outcomes of objects that mean that a commit was applied only in part.
_IN_PART = (Outcome.FAILED, Outcome.SKIPPED, Outcome.BLOCKED)

#: Name of the approving operator if kas did not name one.
UNKNOWN = "unknown"

#: Outcomes of objects that do not need an approval any more.
_GONE_FOR_GOOD = (Outcome.PRUNED, Outcome.DETACHED, Outcome.FORGOTTEN)


@attrs.define(eq=False)
class Passes:
    """
    Passes of one project, as long as this agentk leads.

    :param client: for changes of objects; inventories use agentk's own client.
    :param may_use: returns whether an inventory belongs to this project alone.
    :param ended: called after each pass that processed a commit.
    :ivar report: the result of the last commit that was processed.
    :ivar worked_at: when agentk finished the last commit, or last failed to read the
        cluster; None if agentk has not processed a commit yet.
    :ivar is_busy: whether a commit is in progress.
    :ivar awaits_dependency: whether another project has to be current first.
    :ivar pruning: the progress of deletes; None if none are in progress.
    :ivar has_failed: whether the last pass ended before it had a report.
    """

    _log = Logger()

    _context: ProjectContext
    _settings: ManifestProject
    _desired: DesiredCommits
    _stores: ProjectStores
    _transfers: Transfers
    _drifts: Drifts
    _dependencies: Dependencies
    _journal: Journal
    _client: IKubernetesClient
    _may_use: Callable[[str], bool]
    _ended: Callable[[], None]
    report: Report | None = attrs.field(default=None, init=False)
    worked_at: float | None = attrs.field(default=None, init=False)
    is_busy: bool = attrs.field(default=False, init=False)
    awaits_dependency: bool = attrs.field(default=False, init=False)
    pruning: Pruning | None = attrs.field(default=None, init=False)
    has_failed: bool = attrs.field(default=False, init=False)
    reconciler: Reconciler = attrs.field(init=False)
    _steps: Interruptible = attrs.field(factory=Interruptible, init=False)
    _store: InventoryStore | None = attrs.field(default=None, init=False)
    #: Commit for which an operator gave an order to take fields back, and the objects,
    #: empty for all; None without such an order.
    _repairing: tuple[str, frozenset[ObjectKey]] | None = attrs.field(
        default=None, init=False
    )
    #: Commit that was last processed.  A newer commit may be waiting.
    _worked: str = attrs.field(default="", init=False)
    #: Number of the last passes in a row that ended because of another client.
    _overtaken: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        api = self._context.api
        self.reconciler = Reconciler(
            client=self._client,
            leads=lambda: api.leadership.leads,
            clock=api.clock,
            now=self._context.now,
            planned=self._planned,
            applied=self._applied,
            leaves=self._drifts.leaves,
            prunes=self._note_pruning,
            pruned=self._note_pruned,
        )

    @property
    def is_dry_run(self) -> bool:
        """Whether the project only logs changes without making them."""
        return self._settings.dry_run_strategy != "none"

    def interrupt(self) -> None:
        """
        Interrupt the current pass, to start another one for a new commit or after an
        order.
        """
        self._steps.interrupt()

    def repair(self, keys: Collection[ObjectKey]) -> None:
        """
        Take fields of objects back from other field managers, once and soon.

        :param keys: empty for all objects.
        """
        self._repairing = self._worked, frozenset(keys)
        self.interrupt()

    def guarded(self, report: Report) -> list[Result]:
        """
        Return the objects that agentk should prune but keeps; empty if ``prune`` is
        false.
        """
        return report.blocked if self._settings.prune else []

    def pass_for(self, snapshot: Snapshot, store: InventoryStore) -> Pass:
        """Return the pass that applies a commit."""
        settings = self._settings
        is_newest = snapshot is self._desired.snapshot
        is_absent = self._desired.absent is not None
        return Pass(
            store=store,
            settings=SourceSettings(
                inventory_id=self._stores.id_of(snapshot),
                source=snapshot.followed,
                selection=settings.selection,
                scope=self._context.scope(),
                siblings=self._transfers.handover.inventories,
                default_namespace=settings.default_namespace,
                policy=settings.inventory_policy,
                only_keeps=(
                    is_absent and is_newest and not self._desired.orders.pinned
                ),
                prune=settings.prune,
                limits=settings.prune_limits,
                force=settings.conflicts == "force",
                takes_back=settings.drift.mode == "repair",
                only_reports=settings.drift.mode == "report",
                reconcile_timeout=settings.reconcile_timeout,
                awaits_all=self._dependencies.is_needed(settings.label),
                prune_timeout=settings.prune_timeout,
                propagation=_PROPAGATION[settings.prune_propagation_policy],
            ),
            kept=self._stores.backups(snapshot),
            others=OtherSources(
                stays=self._transfers.stays,
                given=partial(self._transfers.given, snapshot),
                claims=partial(self._transfers.claims, snapshot),
            ),
            threads=self._context.programs.renderer.threads,
        )

    async def run(self) -> None:
        """Process commits until cancelled."""
        backoff = Backoff(self._context.random, TRY_FIRST, TRY_MOST)
        clock = self._context.api.clock
        while True:
            self._steps.begin()
            snapshot, source = self._desired.snapshot, self._desired.source
            if snapshot is None or source is None:
                await self._steps.run(self._without_commit(backoff))
                continue
            well = await self._steps.run(self._reconciled(snapshot, source))
            if well:
                backoff.reset()
            if not self._steps.is_interrupted:
                pause = self._pause() if well else backoff.pause()
                left = self._transfers.wait_ends - clock.seconds()
                pause = min(pause, max(left, LOOK_SOONEST))
                await self._steps.run(self._rest(pause))

    async def _without_commit(self, backoff: Backoff) -> None:
        """If a commit without the project's folder has arrived, read the orders."""
        absent = self._desired.absent
        if absent is None or self._desired.knows_orders:
            await Deferred()
            return
        try:
            orders = await self._stores.orders(absent).read()
            await self._desired.take_orders(orders, absent, None)
        except CallError as error:
            self._journal.explain(absent.commit, [self._explained(error)])
            await deferLater(self._context.api.clock, backoff.failed())
        else:
            self._journal.explain(absent.commit, [])
            backoff.reset()

    # Methods that run between two passes.

    def _pause(self) -> float:
        """Return the seconds until all objects are applied again."""
        if self._settings.drift.mode != "repair":
            # Do not apply periodically: changes by other clients stay until the next
            # commit.
            return math.inf
        if not self.is_dry_run and self._drifts.is_watched:
            return WATCHED_AGAIN * (0.5 + self._context.random() / 2)
        return AGAIN * (0.9 + self._context.random() / 10)

    async def _rest(self, seconds: float) -> None:
        """
        Wait, repairing drift in the meantime; an order or a commit ends the wait early.
        """
        clock = self._context.api.clock
        until = clock.seconds() + seconds
        while (left := until - clock.seconds()) > 0:
            pause = min(left, REST)
            if self._desired.orders.suspended:
                # Drift is not repaired now.
                await deferLater(clock, pause)
                continue
            await self._drifts.wait(pause)
            if (due := self._drifts.due()) and not await self._repair(due):
                return

    async def _repair(self, manifests: list[Manifest]) -> bool:
        """
        Repair the drift of *manifests*; return False if an operator changed the orders.
        """
        snapshot = self._desired.snapshot
        assert snapshot is not None
        keys = [one.key for one in manifests]
        store = self._stores.orders(snapshot)
        one_pass = self.pass_for(snapshot, self._stores.inventory(snapshot, store))
        try:
            orders = await store.read()
            if orders.bound != self._desired.orders.bound:
                why = "an operator suspended the project, or chose another commit"
                self._drifts.could_not_repair(keys, why)
                return False
            results = await self.reconciler.repair(one_pass, self._worked, manifests)
            await one_pass.store.end()
        except Superseded:
            self._drifts.could_not_repair(keys, "another agentk leads")
        except CallError as error:
            self._drifts.could_not_repair(keys, error.message)
        else:
            self._drifts.repaired(results)
        finally:
            self._drifts.worked()
        return True

    # Methods that run one pass.

    async def _reconciled(self, snapshot: Snapshot, source: Source) -> bool:
        """Apply a commit; return whether all objects are as in Git now."""
        self._transfers.idle()
        store = self._stores.orders(snapshot)
        if not await self._may_begin(snapshot, source, store):
            return False
        if self._desired.pinned is not None:
            snapshot, source = self._desired.pinned
        self.is_busy = True
        try:
            self._worked = snapshot.commit
            self._store = self._stores.inventory(snapshot, store)
            self._transfers.use(self._store)
            report = await self._reported(snapshot, source, self._store)
            await self._remember(report, store)
            self._transfers.end(report)
        except Superseded:
            self._journal.superseded()
            self._overtaken += 1
            if self._overtaken >= MAX_OVERTAKEN:
                self._journal.explain(snapshot.commit, [OVERTAKEN])
            return False
        except CallError as error:
            self._end_repair(error.message)
            self._explain_failure(snapshot.commit, error)
            return False
        finally:
            self.is_busy = False
            self.pruning = None
            self._drifts.worked()
        self._overtaken = 0
        self.has_failed = False
        self.report = report
        self.worked_at = self._context.now()
        self._ended()
        self._explain(report)
        self._dependencies.worked(self._settings.label)
        return not (report.problems or report.failed or self._transfers.waits)

    async def _may_begin(
        self, snapshot: Snapshot, source: Source, store: OrderStore
    ) -> bool:
        """Read the orders; return whether a pass may begin."""
        try:
            orders = await store.read()
            await self._desired.take_orders(orders, snapshot, source)
        except CallError as error:
            # A suspended project does not need the pinned commit.
            is_pin = isinstance(error, UnreadablePin)
            if not (is_pin and self._desired.orders.suspended):
                self._explain_failure(snapshot.commit, error)
                return False
        if not self._may_use(self._stores.id_of(snapshot)):
            why = (
                "another project of this agent also has this repository and no name: "
                "give one of them a 'name'"
            )
            self._journal.explain(snapshot.commit, [why])
            return False
        missing = self._dependencies.missing(self._settings.depends_on)
        self.awaits_dependency = bool(missing)
        if missing:
            why = f"it waits for {', '.join(missing)} (depends_on)"
            self._journal.explain(snapshot.commit, [why], is_wrong=False)
            return False
        self._transfers.begin()
        if self._desired.orders.suspended:
            self._end_repair("the project is suspended")
            why = "suspended: nothing is changed"
            self._journal.explain(snapshot.commit, [why], is_wrong=False)
            return False
        return True

    def _end_repair(self, why: str) -> None:
        """
        End the order to repair, because the cluster may be another one when it could be
        carried out.
        """
        if self._repairing is not None:
            self._repairing = None
            self._log.warn(
                "{project} was not repaired: {why}; repeat the order if you still want "
                "it",
                project=self._journal.project,
                why=why,
            )

    async def _reported(
        self, snapshot: Snapshot, source: Source, store: InventoryStore
    ) -> Report:
        reconciler, one_pass = self.reconciler, self.pass_for(snapshot, store)
        if not self.is_dry_run:
            if self._repairing is not None and not source.problems:
                commit, keys = self._repairing
                if commit in ("", snapshot.commit):
                    await reconciler.repair(
                        one_pass, snapshot.commit, source.manifests, keys
                    )
                    self._repairing = None
                else:
                    self._end_repair(f"the project is at {snapshot.commit[:12]} now")
            return await reconciler.run(one_pass, snapshot.commit, source)
        plan = await reconciler.plan(one_pass, snapshot.commit, source)
        if isinstance(plan, Report):
            return plan
        actions = (*plan.wanted.values(), *plan.leaving.values())
        self._journal.dry_run(snapshot.commit, (one.verb.value for one in actions))
        return Report(snapshot.commit)

    async def _remember(self, report: Report, store: OrderStore) -> None:
        """
        Record in the cluster that the commit of *report* was applied.

        :raises Superseded: if another agentk leads since the last change.
        """
        history = self._desired.orders.history
        if self.is_dry_run or report.problems:
            return
        if not self._context.api.leadership.leads:
            raise Superseded
        summary = counted(one.outcome.value for one in report.results.values())
        complete = not any(
            one.outcome in _IN_PART and one.key not in report.unproven
            for one in report.results.values()
        )
        replaces = bool(history) and history[-1].commit == report.commit
        gone = {
            key: uid
            for key, uid in report.uids.items()
            if report.results[key].outcome in _GONE_FOR_GOOD
        }

        # As in the inventory: the objects of the former default_namespace are still in
        # the cluster.
        has_blocked = any(
            one.outcome is Outcome.BLOCKED and one.key not in report.unproven
            for one in report.results.values()
        )
        namespace = "" if self._store is None else self._store.namespace

        def used(orders: Orders) -> Orders:
            approval = orders.approval.without(report.commit, gone)
            held = orders.holding(report.holds, report.released)
            last = LastPass(
                self._stores.mark,
                namespace,
                orders.last.default_namespace
                if has_blocked
                else self._settings.default_namespace,
                orders.last.number,
                report.selection,
            ).ended()
            begun = orders.begun.ended()
            return attrs.evolve(held, approval=approval, last=last, begun=begun)

        if replaces and (history[-1].summary == summary or history[-1].complete):
            # The pass may have written orders since it read them.
            if used(store.latest) != store.latest:
                self._desired.orders = await store.change(used)
            return
        done = AppliedCommit(
            report.commit, round(self._context.now()), summary, complete
        )
        # If the history already ends with this commit, replace the entry: objects that
        # had failed or were held have reached another state.
        self._desired.orders = await store.change(
            lambda orders: used(orders).remembering(done, replaces)
        )

    # Callbacks of the reconciler.

    def _planned(self, plan: Plan, inventory_id: str) -> None:
        if self._settings.drift.mode != "off":
            self._drifts.planned(plan, inventory_id)

    def _applied(self, manifest: Manifest, found: AppliedVersion) -> None:
        if self._settings.drift.mode != "off":
            self._drifts.applied(manifest, found)

    def _note_pruning(self, pruning: Pruning) -> None:
        self.pruning = pruning

    def _note_pruned(self, plan: Plan, key: ObjectKey, uid: str) -> None:
        """Report the delete of an object to kas, for its audit log."""
        # An order that interrupted the delete may have ended the approval since.
        approval = plan.inventory.approval
        names = ", ".join(approval.by) or UNKNOWN
        by = names if approval.covers(plan.commit, key, uid) else ""
        self._context.pruned(self._journal.project, plan.commit, key, by)

    # Methods that write to the log.

    def _explain(self, report: Report) -> None:
        lines = [str(one) for one in report.problems]
        lines += [str(one) for one in (*report.failed, *self.guarded(report))]
        if report.release:
            agent, project = (
                self._context.api.agent_name,
                self._desired.name_in_commands,
            )
            lines.insert(0, how_to_release(agent, project, report))
        if report.is_lost:
            lines.insert(0, LOST)
        is_wrong = not self._transfers.awaits_agents
        self._journal.explain(report.commit, lines, is_wrong=is_wrong)
        if not report.problems:
            self._journal.summarize(report)

    def _explain_failure(self, commit: str, error: CallError) -> None:
        self.has_failed = True
        self._journal.explain(commit, [self._explained(error)])
        if self.report is not None:
            # Set the time last, because it notifies callers that wait for the end of
            # the pass.
            self.worked_at = self._context.now()

    def _explained(self, error: CallError) -> str:
        namespace = "" if self._store is None else self._store.namespace
        return why_nothing_was_done(error, namespace)
