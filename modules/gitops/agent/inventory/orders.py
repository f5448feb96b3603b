"""
Orders that operators give for a project through `kasctl gitops`, and its history.

    Secret gitops-orders-ID     data: orders, one JSON object

Orders are not stored in the inventory, because many users may write inventories, and an
order decides what agentk applies with its own permissions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from secrets import token_hex
from typing import Any

import attrs

from modules.gitops.agent.inventory.own_secret import OwnSecret
from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import IKubernetesClient
from tunnel.errors import CallError, Status

__all__ = [
    "MAX_HELD",
    "MAX_HISTORY",
    "MAX_OPEN",
    "AppliedCommit",
    "Approval",
    "BegunDeletes",
    "LastPass",
    "OrderStore",
    "Orders",
]

#: Maximum number of commits in the history.
MAX_HISTORY = 20

#: Maximum number of objects that the Secret records as held; further held objects are
#: marked only in the inventory.
MAX_HELD = 10_000

#: Maximum number of interrupted executions in a row whose signatures are valid.  Each
#: execution that writes signs the entries again, so the last ones are sufficient; more
#: would make it slow to find out that an entry has no valid signature.
MAX_OPEN = 16

#: Maximum number of attempts to write orders, because another agentk may write at the
#: same time.
TRIES = 3

#: The only key in the Secret's data.
_KEY = "orders"


@attrs.frozen
class AppliedCommit:
    """
    Entry of the history: a commit that was applied.

    :ivar at: when the commit was applied, in seconds since 1970.
    :ivar summary: counts of its objects by outcome: ``3 created, 1 pruned``.
    :ivar complete: whether no object failed, was skipped, or was held back.
    """

    commit: str
    at: float
    summary: str
    complete: bool = True


#: Maximum number of recorded users who approved one commit, and maximum characters of
#: each name.
MAX_USERS, MAX_USER = 10, 200


@attrs.frozen
class Approval:
    """
    Deletes of one commit that an operator approved.

    The uid of an object belongs to its approval: a user may recreate an object that was
    deleted, and nobody has approved the delete of the new object.

    :ivar objects: digests of the keys and uids of the objects that may be deleted.
    :ivar by: the users who approved the deletes; empty if unknown.
    """

    commit: str = ""
    objects: frozenset[str] = frozenset()
    by: tuple[str, ...] = ()

    def adding(
        self, commit: str, uids: Mapping[ObjectKey, str], by: str = ""
    ) -> Approval:
        """
        Return an approval that also covers deletes with *commit*.

        :param uids: the uid of each object that may be deleted.
        """
        before = self if commit == self.commit else Approval()
        others = [one for one in before.by if one != by[:MAX_USER]]
        users = [*others, *filter(None, [by[:MAX_USER]])]
        return Approval(
            commit,
            before.objects.union(_digests_with(uids)),
            tuple(users[-MAX_USERS:]),
        )

    def without(self, commit: str, uids: Mapping[ObjectKey, str]) -> Approval:
        """
        Return the rest of the approval after objects were deleted with *commit*.

        :param uids: as for `adding`.
        """
        if commit != self.commit:
            return self
        left = self.objects.difference(_digests_with(uids))
        return Approval(commit, left, self.by) if left else Approval()

    def covers(self, commit: str, key: ObjectKey, uid: str) -> bool:
        """Return whether *commit* may delete the object with this uid."""
        is_of_commit = bool(commit) and commit == self.commit
        return is_of_commit and _digest((*key, uid)) in self.objects


@attrs.frozen
class BegunDeletes:
    """
    Deletes that agentk began with one commit without an approval.

    Other clients may hide entries of the inventory, and show few of them to each pass.
    The limits of the source therefore apply to all deletes of a commit together; after
    an interrupted execution, they apply to the next commit, too, because such clients
    can interrupt each execution, and use copies of entries until one has ended.

    :ivar objects: digests of the keys of the objects, at most `MAX_HELD`.
    :ivar is_open: whether no execution has ended since the deletes began.
    """

    commit: str = ""
    objects: frozenset[str] = frozenset()
    is_open: bool = False

    def adding(self, commit: str, keys: Collection[ObjectKey]) -> BegunDeletes:
        """Return the deletes of *commit*, with *keys* among them."""
        before = self.objects if self._counts(commit) else frozenset()
        new = [one for one in map(_digest, sorted(keys)) if one not in before]
        objects = before.union(new[: MAX_HELD - len(before)])
        return BegunDeletes(commit, objects, is_open=True)

    def ended(self) -> BegunDeletes:
        """Return the deletes after an execution has ended."""
        return attrs.evolve(self, is_open=False)

    def besides(self, commit: str, keys: Collection[ObjectKey]) -> int:
        """
        Return the number of objects that count for *commit* and are not in *keys*.
        """
        if not self._counts(commit):
            return 0
        return len(self.objects.difference(map(_digest, keys)))

    def _counts(self, commit: str) -> bool:
        return self.is_open or commit == self.commit


@attrs.frozen
class LastPass:
    """
    Facts about the inventory after the last pass; empty if unknown.

    The inventory contains most of them as well, but other clients may change it.

    :ivar writer: the agentk (`InventoryWriter.mark`).
    :ivar namespace: the Namespace of the inventory.
    :ivar default_namespace: the ``default_namespace`` of the objects.
    :ivar selection: the value of `Inventory.selection`.
    :ivar number: the number of executions that changed the inventory, in decimal
        digits.  Each of them signs all entries with its number, so that other clients
        cannot use a copy of an entry later.
    :ivar done: the number of the last such execution that ended.
    :ivar open: the numbers of the executions that began later and have not ended, the
        newest last, at most `MAX_OPEN`.
    """

    writer: str = ""
    namespace: str = ""
    default_namespace: str = ""
    number: str = ""
    selection: str = ""
    done: str = ""
    open: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """
        The numbers of valid signatures, the newest first: if executions were
        interrupted, a part of the entries may still have the signatures of the
        executions before.
        """
        return (*reversed(self.open), self.done)

    def begun(self) -> LastPass:
        """Return the facts after another execution has begun."""
        number = str(int(self.number or "0") + 1)
        return attrs.evolve(self, number=number, open=(*self.open, number)[-MAX_OPEN:])

    def ended(self) -> LastPass:
        """Return the facts after the last execution has ended."""
        return attrs.evolve(self, done=self.number, open=())


@attrs.frozen
class Orders:
    """
    Orders for one project, and its history.

    :ivar suspended: whether agentk must not change any object.
    :ivar pinned: the commit at which the project stays; empty if it follows its ref.
    :ivar history: the applied commits, the newest last.
    :ivar held: digests of the objects whose deletes wait for an approval.
    :ivar begun: the deletes that count towards the limits of the source.
    :ivar seal: the key of the signatures in the inventory; empty if none was made yet.
    :ivar last: facts to compare the inventory with.
    :ivar lost: whether the inventory was gone, and no operator has resumed the project
        since.
    """

    approval: Approval = Approval()
    suspended: bool = False
    pinned: str = ""
    history: tuple[AppliedCommit, ...] = ()
    held: frozenset[str] = frozenset()
    begun: BegunDeletes = BegunDeletes()
    seal: str = attrs.field(default="", repr=False)
    last: LastPass = LastPass()
    lost: bool = False

    @property
    def bound(self) -> tuple[bool, str]:
        """
        Orders that decide whether work in progress may continue: suspended and pinned.
        """
        return self.suspended, self.pinned

    def holding(
        self, keys: Collection[ObjectKey], released: Collection[ObjectKey]
    ) -> Orders:
        """
        Return orders that hold the deletes of *keys* as well, but not of *released*.

        All other deletes stay held, even if the inventory does not contain their
        objects now: other clients may remove entries from the inventory, and add them
        again later.  At `MAX_HELD`, the deletes that are held already take precedence.
        """
        kept = self.held - frozenset(map(_digest, released))
        new = [one for one in map(_digest, sorted(keys)) if one not in kept]
        added = new[: max(MAX_HELD - len(kept), 0)]
        return attrs.evolve(self, held=kept.union(added))

    def is_held(self, key: ObjectKey) -> bool:
        """Return whether the delete of an object is waiting for an approval."""
        return bool(self.held) and _digest(key) in self.held

    def remembering(self, done: AppliedCommit, replaces: bool) -> Orders:
        """
        Return orders whose history includes *done*.

        :param replaces: whether *done* is for the last commit of the history, and
            replaces it.
        """
        before = self.history[:-1] if replaces else self.history
        history = (*before, done)[-MAX_HISTORY:]
        # An approval is valid for one application of its commit.
        ended = done.complete or done.commit != self.approval.commit
        return attrs.evolve(
            self, history=history, approval=Approval() if ended else self.approval
        )


class OrderStore:
    """
    Reader and writer of the orders of one project.

    :param client: acts as agentk.
    :param inventory_id: the inventory of the project.
    :param namespace: agentk's own Namespace.
    """

    def __init__(
        self, client: IKubernetesClient, inventory_id: str, namespace: str
    ) -> None:
        self._client = client
        self._secret = OwnSecret(
            client, namespace, f"gitops-orders-{inventory_id}", inventory_id
        )
        self._known: Orders | None = None
        #: The orders as this object last read or wrote them.
        self.latest = Orders()

    async def has(self, inventory_id: str, mark: str) -> bool:
        """
        Return whether the agentk with *mark* has applied the project of another
        inventory.

        :raises CallError: as in `IKubernetesClient`.
        """
        other = OrderStore(self._client, inventory_id, self._secret.namespace)
        try:
            found = await other.read()
            # An earlier version recorded no mark.  The first pass, which has no history
            # yet, may take an hour.
            is_known = found.history or found.last.writer
            return bool(is_known) and found.last.writer in ("", mark)
        except CallError as error:
            if error.status is not Status.FAILED_PRECONDITION:
                raise
            return False

    async def read(self) -> Orders:
        """
        Read and return the current orders.

        :raises CallError: as in `OwnSecret.read` and `IKubernetesClient`.
        """
        self._known = await self._read()
        return self._known

    async def known(self) -> Orders:
        """
        Return the orders as they were first read; read them now if they were not read
        yet.

        :raises CallError: as `read`.
        """
        return await self.read() if self._known is None else self._known

    async def seal(self) -> str:
        """
        Return the key of the inventory's signatures; create the key if it does not
        exist.

        :raises CallError: as `change`.
        """
        known = await self.known()
        if not known.seal:
            new = token_hex(32)
            changed = await self.change(
                lambda orders: attrs.evolve(orders, seal=orders.seal or new)
            )
            known = self._known = attrs.evolve(known, seal=changed.seal)
        return known.seal

    async def begin_writing(self, writer: str, namespace: str) -> str:
        """
        Return the number of an execution that is about to change the inventory.

        Each execution has a new number, also after an interrupted execution: a copy of
        an entry that the interrupted execution signed must not be valid after this
        execution has ended.

        :param writer: this agentk, for a project that no execution has written yet: if
            the project is renamed or removed before its first pass ends, its objects
            must be known to be this agentk's.
        :param namespace: the Namespace of the inventory, also for the first execution.
        :raises CallError: as `change`.
        """

        def numbered(orders: Orders) -> Orders:
            last = orders.last
            if last == LastPass():
                last = attrs.evolve(last, writer=writer, namespace=namespace)
            return attrs.evolve(orders, last=last.begun())

        return (await self.change(numbered)).last.number

    async def end_writing(self, number: str) -> None:
        """
        Record that the execution with a number has ended, so that only its signatures
        are valid.

        :raises CallError: as `change`.
        """

        def ended(orders: Orders) -> Orders:
            if orders.last.number != number:
                return orders
            return attrs.evolve(orders, last=orders.last.ended())

        await self.change(ended)

    async def confirmed(self) -> Orders:
        """
        Return the orders if they have not changed since they were first read.

        :raises CallError: ABORTED if an operator suspended, pinned or resumed the
            project since then.
        """
        found, known = await self._read(), self._known
        if known is None:
            self._known = found
        elif known.bound != found.bound:
            raise CallError(
                Status.ABORTED, "an operator has changed the orders of the project"
            )
        return found

    async def change(self, change: Callable[[Orders], Orders]) -> Orders:
        """
        Replace the orders by the result of *change*, and return it; write nothing if
        they are the same.

        :param change: called again if another agentk writes at the same time.
        :raises CallError: ABORTED if other writers were faster each time; see
            `OwnSecret.write`.
        """
        left = TRIES
        while True:
            left -= 1
            before = await self._read()
            orders = change(before)
            if orders == before:
                return orders
            try:
                await self._secret.write({_KEY: _written(orders)})
            except CallError as error:
                if not left or error.status is not Status.ABORTED:
                    raise
            else:
                self.latest = orders
                return orders

    async def _read(self) -> Orders:
        self.latest = await self._parsed()
        return self.latest

    async def _parsed(self) -> Orders:
        text = (await self._secret.read()).get(_KEY)
        if text is None:
            return Orders()
        try:
            return _orders(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise self._secret.unreadable(
                f"another client wrote the value of {_KEY}"
            ) from None


def _digest(names: Iterable[str]) -> str:
    """Return the digest of the key of an object, or of its key and its uid."""
    # A digest is the first 64 bits of a SHA-256: a Secret has room for about 50,000
    # digests, in approvals and held objects together.
    return sha256("\0".join(names).encode()).hexdigest()[:16]


def _digests_with(uids: Mapping[ObjectKey, str]) -> Iterator[str]:
    return (_digest((*key, uid)) for key, uid in uids.items())


def _written(orders: Orders) -> bytes:
    found: dict[str, Any] = {"history": [attrs.astuple(one) for one in orders.history]}
    if orders.approval.commit:
        found["approved"] = {
            "commit": orders.approval.commit,
            "objects": sorted(orders.approval.objects),
        }
        if orders.approval.by:
            found["approved"]["by"] = list(orders.approval.by)
    if orders.suspended:
        found["suspended"] = True
    if orders.pinned:
        found["pinned"] = orders.pinned
    if orders.held:
        found["held"] = sorted(orders.held)
    if orders.begun.objects:
        found["begun"] = {
            "commit": orders.begun.commit,
            "objects": sorted(orders.begun.objects),
            "open": orders.begun.is_open,
        }
    if orders.seal:
        found["seal"] = orders.seal
    if orders.last != LastPass():
        found["last"] = attrs.asdict(orders.last)
    if orders.lost:
        found["lost"] = True
    return json.dumps(found, separators=(",", ":")).encode()


def _orders(found: Mapping[str, Any]) -> Orders:
    approved = found.get("approved") or {"commit": "", "objects": ()}
    by = approved.get("by")
    begun = found.get("begun") or {"commit": "", "objects": ()}
    return Orders(
        Approval(
            str(approved["commit"]),
            # Earlier versions wrote digests without uids, which cover no object: the
            # status asks for another approval.
            frozenset(map(str, approved["objects"])),
            # Version 0.9.0 wrote a single name in place of a list.
            tuple(map(str, [by] if isinstance(by, str) and by else by or ())),
        ),
        found.get("suspended") is True,
        str(found.get("pinned", "")),
        tuple(
            AppliedCommit(str(commit), float(at), str(summary), bool(complete))
            for commit, at, summary, complete in found.get("history", ())
        ),
        frozenset(map(str, found.get("held", ()))),
        BegunDeletes(
            str(begun["commit"]),
            frozenset(map(str, begun["objects"])),
            begun.get("open") is True,
        ),
        str(found.get("seal", "")),
        _last(found.get("last") or {}),
        found.get("lost") is True,
    )


def _last(found: Mapping[str, Any]) -> LastPass:
    names = attrs.fields_dict(LastPass).keys() - {"open"}
    texts: dict[str, Any] = {one: str(found.get(one, "")) for one in names}
    last = LastPass(**texts)
    # Earlier versions wrote no list, because they reused the number of an interrupted
    # execution.
    default = (last.number,) if last.number != last.done else ()
    numbers = tuple(map(str, found.get("open", default)))
    return attrs.evolve(last, open=numbers[-MAX_OPEN:])
