"""Record of one execution: the inventory's entries, and the results so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
from twisted.internet.defer import DeferredLock

from modules.gitops.agent.apply.outcome import Outcome, Result
from modules.gitops.agent.inventory.inventory import (
    Inventory,
    InventoryEntry,
    InventoryStore,
)
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.plan.plan import Plan
from tunnel.errors import CallError, Status

__all__ = ["Ledger", "Superseded"]


class Superseded(Exception):
    """
    Signal that another agentk leads or an operator gave an order, so that this
    execution must make no more changes.
    """


@attrs.define(eq=False)
class Ledger:
    """
    Record of one execution of a plan.

    :param source: the `SourceSettings.source` of the project; *selection* also.
    :param leads: returns whether this agentk still leads.
    :ivar entries: the inventory's entries; `write` stores them.
    :ivar namespace: the ``default_namespace`` of all entries.
    :ivar selection: see `Inventory.selection`.
    :ivar results: the result of each object so far.
    """

    _plan: Plan
    _source: str
    _store: InventoryStore
    _leads: Callable[[], bool]
    namespace: str
    selection: str = ""
    entries: dict[ObjectKey, InventoryEntry] = attrs.field(init=False)
    results: dict[ObjectKey, Result] = attrs.field(factory=dict, init=False)
    #: The inventory as it was last read or written.
    _inventory: Inventory = attrs.field(init=False)
    #: Lock of `write`, because objects of one layer are applied at the same time.
    _writing: DeferredLock = attrs.field(factory=DeferredLock, init=False)

    def __attrs_post_init__(self) -> None:
        self._inventory = self._plan.inventory
        before = self._inventory.selection
        if not self._plan.whole:
            self.selection = before
        elif self.selection != before:
            # Forget the former settings, because they may return before all deletes
            # have waited.
            self.selection = ""
        self.entries = dict(self._plan.inventory.entries)

    def note(self, key: ObjectKey, outcome: Outcome, reason: str = "") -> None:
        """Record the result of an object."""
        action = self._plan.wanted.get(key)
        manifest = action.manifest if action is not None else None
        origin = manifest.origin if manifest is not None else None
        self.results[key] = Result(key, outcome, reason, origin)

    def has(self, *outcomes: Outcome) -> bool:
        """Return whether an object has one of these outcomes."""
        return any(one.outcome in outcomes for one in self.results.values())

    def check_leads(self) -> None:
        """
        Check that this agentk may still change objects.

        :raises Superseded: if another agentk leads.
        """
        if not self._leads():
            raise Superseded

    async def confirm(self) -> None:
        """
        Check that the inventory has not changed before this execution makes its first
        change, because reading the commit may have taken minutes.

        :raises Superseded: see `Superseded`.
        :raises CallError: if the inventory cannot be read.
        """
        await _unless_superseded(self._store.confirm())

    async def check(self) -> None:
        """
        Check that no other client has written to the inventory.

        This check is needed because agentk may have written the inventory hours ago,
        and this execution may not write it.

        :raises Superseded: if another agentk or an operator has written to the
            inventory.
        :raises CallError: if the inventory cannot be read.
        """
        await _unless_superseded(self._store.check())

    async def write(self, *, is_planned: bool = True) -> None:
        """
        Write `entries` to the inventory if they differ from its content.

        :param is_planned: whether the objects of the commit were claimed.  Other owners
            of these objects rely on the claims when they see the commit in the
            inventory.
        :raises Superseded: if another agentk or an operator has written to the
            inventory.
        :raises CallError: if the inventory cannot be written.
        """
        async with self._writing:
            await self._write(is_planned)

    async def renew(self) -> None:
        """
        Write `entries` with signatures of this execution, also if they are unchanged.

        Otherwise other clients could use copies of the present entries after this
        execution has ended.

        :raises Superseded: as `write`.
        :raises CallError: as `write`.
        """
        async with self._writing:
            await self._write(True, renews=not self._store.has_signed)

    async def save(self) -> None:
        """
        Write `entries` before a wait, because a newer commit may end this execution
        during the wait.

        A later `write` reports the errors of the inventory.

        :raises Superseded: as `write`.
        """
        if not self._writing.locked:
            try:
                await self.write()
            except CallError:
                return

    async def _write(self, is_planned: bool, *, renews: bool = False) -> None:
        before = self._inventory
        if before.of_other and not self._plan.whole:
            # A write would make this agentk the inventory's writer, without approvals
            # of its deletes.
            return
        after = attrs.evolve(
            before,
            entries=dict(self.entries),
            # A plan for some objects claims only these objects, so the inventory keeps
            # its commit.
            commit=(
                self._plan.commit if is_planned and self._plan.whole else before.commit
            ),
            default_namespace=self.namespace,
            of_other="",
            source=self._source,
            selection=self.selection,
            is_altered=False,
        )
        is_same = attrs.astuple(after, recurse=False) == attrs.astuple(
            before, recurse=False
        )
        # The end of this execution makes the signatures of interrupted ones invalid.
        renews = renews or (self._plan.whole and self._store.is_interrupted)
        if is_same and not renews:
            return
        self.check_leads()
        await _unless_superseded(self._store.write(after))
        self._inventory = after


async def _unless_superseded(request: Awaitable[None]) -> None:
    try:
        await request
    except CallError as error:
        if error.status is Status.ABORTED:
            raise Superseded from None
        raise
