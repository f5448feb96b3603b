"""
Objects that move between this project, other projects of this agent, and other agents.

A pass of a project queries the state of each such object.  After the pass, the results
determine for which projects or agents the project waits, and when it checks again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import attrs
from twisted.internet.interfaces import IReactorTime

from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.apply.pruner import CLAIMED_MEANWHILE, NOT_WHILE_FAILING
from modules.gitops.agent.inventory.claims import OTHERS_SECONDS, Claim, Claims, Waits
from modules.gitops.agent.inventory.handover import ProjectHandover
from modules.gitops.agent.inventory.inventory import InventoryStore
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.plan.plan import INCOMPLETE, Gift
from modules.gitops.agent.project.reconcile import Report
from modules.gitops.agent.source.snapshot import Snapshot
from tunnel.api import KubernetesObject

__all__ = ["Transfers"]


@attrs.define(eq=False)
class Transfers:
    """
    Record of the objects that move between one project and others, as found in its last
    pass.

    :param handover: the handover between this project and others.
    :param claims_of: returns the claims of other agents, for the commit of a pass.
    :ivar waits: whether an object waits for another project, which keeps it or will
        take it.
    :ivar took: whether an object was taken from another project.
    :ivar wait_ends: when the first wait for another agent ends; infinite if no object
        waits.
    :ivar hands_over: whether objects stay until another project takes them, without any
        other problem.
    :ivar only_waits: like *hands_over*, but including the objects that wait for other
        agents.
    """

    handover: ProjectHandover
    _clock: IReactorTime
    _claims_of: Callable[[Snapshot, Waits, Collection[str]], Claims]
    waits: bool = attrs.field(default=False, init=False)
    took: bool = attrs.field(default=False, init=False)
    wait_ends: float = attrs.field(default=math.inf, init=False)
    hands_over: bool = attrs.field(default=False, init=False)
    only_waits: bool = attrs.field(default=False, init=False)
    #: Waits of deletes for other agents; see `Claims`.
    deletes_wait: Waits = attrs.field(factory=Waits, init=False)
    #: Inventory of the pass; None before the first pass.
    _store: InventoryStore | None = attrs.field(default=None, init=False)
    #: Objects that are not deleted because the handover keeps them.
    _handed: set[ObjectKey] = attrs.field(factory=set, init=False)
    #: Objects whose deletes wait for other agents.
    _delayed: set[ObjectKey] = attrs.field(factory=set, init=False)
    #: Objects that other projects are expected to give up, and the time when the wait
    #: began for objects of owners that may keep them.
    _awaited: set[ObjectKey] = attrs.field(factory=set, init=False)
    _awaited_since: dict[ObjectKey, float] = attrs.field(factory=dict, init=False)
    #: For each inventory of another agent, whether it follows the same source; for one
    #: pass.
    _follows_same: dict[str, bool] = attrs.field(factory=dict, init=False)

    @property
    def awaits_agents(self) -> bool:
        """Whether the only remaining changes are deletes that wait for other agents."""
        return self.only_waits and bool(self._delayed) and self.wait_ends < math.inf

    def new_commit(self) -> None:
        """Start new waits, because another commit has arrived."""
        self._awaited_since.clear()

    def idle(self) -> None:
        """Record that the project has no pass, for a reason other than transfers."""
        self.hands_over = self.only_waits = False

    def begin(self) -> None:
        """Forget the results of the last pass."""
        self.waits = self.took = False
        self.wait_ends = math.inf
        self._handed.clear()
        self._delayed.clear()
        self._awaited.clear()
        self._follows_same.clear()

    def use(self, store: InventoryStore) -> None:
        """Set the inventory of the pass."""
        self._store = store

    def end(self, report: Report) -> None:
        """Evaluate the results of a pass, and notify the other projects."""
        stays = {one.key: one.reason for one in report.blocked}
        late = {key for key, why in stays.items() if why == CLAIMED_MEANWHILE}
        if late:
            self._delayed |= late
            self.waits = True
        if self._awaited:
            # Wait for the object, because it is pruned once these reasons no longer
            # apply.
            why_not = (INCOMPLETE, NOT_WHILE_FAILING)
            self._delayed |= {key for key, why in stays.items() if why in why_not}
        failed = {
            one.key for one in report.failed if one.outcome is Outcome.FAILED
        } - self._awaited
        wrong = report.problems or report.held
        self.hands_over = (
            not wrong and not report.failed and stays.keys() <= self._handed
        )
        self.only_waits = (
            not wrong and not failed and stays.keys() <= self._handed | self._delayed
        )
        if self.took:
            self.handover.changed()

    # Methods that a plan calls.

    def stays(self, key: ObjectKey) -> str:
        """See `make_plan`."""
        why = self.handover.stays(key)
        if why:
            self.waits = True
            self._handed.add(key)
        return why

    async def given(self, snapshot: Snapshot, key: ObjectKey, owner: str) -> Gift:
        """See `make_plan`."""
        gift = await self.gives(key, owner)
        if not gift.is_made and await self._will_be_given(snapshot, key, owner, gift):
            self._awaited.add(key)
        self.took = self.took or gift.is_made
        self.waits = self.waits or not gift.is_made
        return gift

    async def gives(self, key: ObjectKey, owner: str) -> Gift:
        """Return whether the source with the inventory *owner* has given up *key*."""
        gives = self.handover.gives(key, owner)
        if gives is not None:
            return Gift(gives)
        # The inventory may belong to a project that was renamed.
        store = self._store
        if store is None or not await store.is_of_us(owner):
            return Gift(False)
        unknown = self.handover.why_incomplete
        return Gift(not unknown, unknown)

    async def _will_be_given(
        self, snapshot: Snapshot, key: ObjectKey, owner: str, gift: Gift
    ) -> bool:
        """
        Return whether the source with the inventory *owner* may give up *key* soon.

        :param gift: the result of `gives`.
        """
        if self.handover.will_read(owner):
            return True
        if owner in self.handover.inventories:
            return False
        # The owner is a former project or another agent, which may also keep the
        # object, so limit the wait.
        now = self._clock.seconds()
        since = self._awaited_since.setdefault(key, now)
        if now - since >= OTHERS_SECONDS:
            return False
        if gift.why_unknown:
            return True
        found = self._follows_same.get(owner)
        if found is None:
            claims = self._claims_of(snapshot, Waits(), ())
            found = self._follows_same[owner] = await claims.may_follow(owner)
        return found

    async def claims(
        self, snapshot: Snapshot, objects: Mapping[ObjectKey, KubernetesObject]
    ) -> Mapping[ObjectKey, Claim]:
        """See `make_plan`."""
        siblings = self.handover.inventories
        claims = self._claims_of(snapshot, self.deletes_wait, siblings)
        found = await claims.of(objects)
        delayed = {key for key, one in found.items() if not one.is_made}
        self._delayed |= delayed
        if delayed:
            self.waits = True
            left = min(found[key].seconds for key in delayed)
            self.wait_ends = self._clock.seconds() + left
        return found
