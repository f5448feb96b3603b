"""Execution of a plan in the cluster: updates the inventory, applies, waits, prunes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from twisted.internet.interfaces import IReactorTime

from modules.gitops.agent.apply.applier import Applier
from modules.gitops.agent.apply.backups import KeptStates
from modules.gitops.agent.apply.execution import Execution
from modules.gitops.agent.apply.ledger import Ledger
from modules.gitops.agent.apply.outcome import Outcome, Result
from modules.gitops.agent.apply.ownership_marks import OwnershipMarks
from modules.gitops.agent.apply.pruner import Pruner, Pruning
from modules.gitops.agent.apply.readiness import wait_until_current
from modules.gitops.agent.apply.settled import Settled
from modules.gitops.agent.inventory.inventory import InventoryStore
from modules.gitops.agent.objects.differences import AppliedVersion
from modules.gitops.agent.objects.manifests import Manifest, ObjectKey
from modules.gitops.agent.plan.plan import Plan, SourceSettings
from tunnel.api import IKubernetesClient

__all__ = ["Act"]


@attrs.define(eq=False)
class Act:
    """
    Execution of one plan.

    :param leads: called before each change; returns whether this agentk still leads.
    :param applied_one: called with each applied object and its new version.
    :param kept: stores the previous states of objects; None if no states are stored.
    :param stays: see `OtherSources`; called again before each delete.
    :param prunes: called with a `Pruning` when deletes begin, which is updated as the
        deletes proceed.
    :param pruned: called with each object that was deleted because it was removed from
        Git, and its uid.
    :param settled: the results of earlier plans.  An object is not applied again while
        its fields are as in such a result.
    :ivar results: the result of each object, once `run` has returned.
    """

    _client: IKubernetesClient
    _plan: Plan
    _settings: SourceSettings
    _store: InventoryStore
    _leads: Callable[[], bool]
    _clock: IReactorTime
    #: Returns the current time in seconds since 1970.
    _now: Callable[[], float]
    _applied_one: Callable[[Manifest, AppliedVersion], None] = lambda one, found: None
    _settled: dict[ObjectKey, Settled] = attrs.field(factory=dict)
    _kept: KeptStates | None = None
    _stays: Callable[[ObjectKey], str] = lambda key: ""
    _prunes: Callable[[Pruning], None] = lambda pruning: None
    _pruned: Callable[[ObjectKey, str], None] = lambda key, uid: None
    _ledger: Ledger = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        plan, settings = self._plan, self._settings
        namespace = plan.inventory.default_namespace or settings.default_namespace
        self._ledger = Ledger(
            plan,
            settings.source,
            self._store,
            self._leads,
            namespace,
            settings.selection,
        )

    @property
    def results(self) -> Mapping[ObjectKey, Result]:
        """The result of each object, once `run` has returned."""
        return self._ledger.results

    @property
    def selection(self) -> str:
        """Value of `Inventory.selection` after `run`."""
        return self._ledger.selection

    async def run(self) -> None:
        """
        Execute the plan.

        A failure of a single object is recorded in `results`.

        :raises Superseded: if another agentk leads and will read the inventory, or an
            operator gave an order in the meantime.
        :raises CallError: if the inventory cannot be written.
        """
        execution = Execution(
            self._client,
            self._plan,
            self._settings,
            self._ledger,
            self._clock,
            self._now,
            self._kept,
        )
        marks = OwnershipMarks(execution)
        applier = Applier(execution, marks, self._settled, self._applied_one)
        pruner = Pruner(execution, marks, self._stays, self._prunes, self._pruned)
        try:
            await self._execute(execution, marks, applier, pruner)
        finally:
            marks.stop()

    async def _execute(
        self,
        execution: Execution,
        marks: OwnershipMarks,
        applier: Applier,
        pruner: Pruner,
    ) -> None:
        plan, ledger = self._plan, self._ledger
        applier.register()
        pruner.register()
        if not applier.changes_nothing:
            await ledger.confirm()
        if marks.takes_any:
            # Write an entry for each object before this project takes it: a newer
            # commit may interrupt this execution.
            await ledger.write(is_planned=False)
        # Set the marks before the inventory names the commit.  Until the inventory
        # names the commit, the present owner of these objects waits for this source;
        # afterwards the owner checks each object again.
        await marks.mark_all()
        await ledger.write()
        if plan.whole:
            applier.forget_others()
        for layer in plan.order.layers:
            await applier.apply_all(layer)
            every = self._settings.awaits_all
            if awaited := [k for k in layer if every or k in plan.order.awaited]:
                # Record the uids of new objects: a newer commit may interrupt the wait,
                # and remove the objects.
                await ledger.write()
                await wait_until_current(execution, awaited)
                await ledger.check()
        await ledger.write()
        failed = ledger.has(Outcome.FAILED, Outcome.SKIPPED)
        if plan.leaving:
            await ledger.check()
        await pruner.release_all(failed)
        if not failed:
            await pruner.prune_all()
        blocked = {
            key for key, one in ledger.results.items() if one.outcome is Outcome.BLOCKED
        }
        if plan.whole and not blocked - plan.unproven:
            ledger.namespace = self._settings.default_namespace
        if plan.whole and not plan.waits:
            ledger.selection = self._settings.selection
        await ledger.write()
