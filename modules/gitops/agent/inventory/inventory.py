"""
List of the objects that are in the cluster because of a source.

    ConfigMap inventory-ID      part 0, and the number of parts
    ConfigMap inventory-ID-1    part 1, if one is not enough

Each key of ``data`` is an object.  Keys, names and the label are compatible with
cli-utils, so that inventories of GitLab's agent are found.

An inventory never lists fewer objects than exist: objects are added before they are
applied and removed after they were deleted.  The part of an object depends on a hash of
its key, so a write that is interrupted leaves each part in its old or new state, and
both are sufficient.  Part 0 is written first, with the version that was read: an agentk
that has lost its leadership fails at that write.  Part 0 names a new commit only in a
second write, after all other parts, because other agents then rely on every entry.
Because part 0 may be unchanged, agentk also checks its version before each delete and
after each wait.

Other clients may write ConfigMaps.  Therefore agentk signs each entry, and the Secret
with the orders contains the facts that hold deletes.  agentk signs an entry that
another client added only if Git contains its object.
"""

from __future__ import annotations

import hmac
import json
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.agent.inventory.orders import (
    Approval,
    BegunDeletes,
    Orders,
    OrderStore,
)
from modules.gitops.agent.inventory.writer import InventoryWriter
from modules.gitops.agent.objects.error_statuses import UNDECIDED
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import OWNER, owner_of
from tunnel.api import IKubernetesClient, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.texts import clean
from tunnel.toolkit.time_limit import shielded

__all__ = [
    "COMMIT",
    "LABEL",
    "MAX_PARTS",
    "PARTS",
    "RECREATE_SECONDS",
    "SELECTION",
    "SOURCE",
    "UNMARKED",
    "WRITER",
    "Inventory",
    "InventoryEntry",
    "InventoryStore",
    "entry_of",
    "part_name",
]

#: Label of the ConfigMaps of an inventory.  Source: kubernetes-sigs/cli-utils,
#: pkg/common.
LABEL = "cli-utils.sigs.k8s.io/inventory-id"

#: Annotations of part 0: the number of parts, the number of writes, and the commit.
PARTS = "txkas/inventory-parts"
WRITES = "txkas/inventory-writes"
COMMIT = "txkas/commit"

#: Maximum bytes of keys and values in one part.  A ConfigMap has room for a megabyte.
MAX_PART = 700 * 1024

#: Maximum number of parts of one inventory, a power of two like each number of parts;
#: it limits the amount of data that is read.
MAX_PARTS = 16

_CONFIG_MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)

#: Annotation of part 0: the ``default_namespace`` of the source.
DEFAULT = "txkas/default-namespace"

#: Annotation of part 0: the agentk that wrote it last (`InventoryWriter.mark`).
WRITER = "txkas/writer"

#: Annotation of part 0: the repository and ref that the project follows.
SOURCE = "txkas/source"

#: Annotation of part 0: `Inventory.selection`.
SELECTION = "txkas/selection"

#: Reason to hold an object whose inventory entry is no longer marked as held.
HELD_BEFORE = "it waited for an approval before"

#: Value of `Inventory.of_other` if the inventory does not name its writer.
UNMARKED = f"unknown, because the annotation {WRITER} is missing"

#: Number of hexadecimal characters of a signature in the inventory.
MAC = 32

#: Maximum characters of a writer's mark in messages.
MAX_MARK = 300

#: Maximum characters of the reason in a log line: other clients may have written parts
#: of it.
MAX_REASON = 1000

#: Maximum number of entries without a valid signature that are read: other clients may
#: write megabytes of them.  Inventories of earlier versions have none, so some
#: thousands are needed once.
MAX_UNSIGNED = 5000

#: Maximum characters of the parts of a key (group, kind, namespace, name), and of
#: further texts of an entry.  A text of an unlimited length could fill the inventory.
MAX_KEY = (253, 63, 63, 1024)
MAX_UID, MAX_APPLIED, MAX_CLAIMED = 128, 1000, 253

#: Maximum seconds to create a part that was deleted because it is immutable, and
#: backoff between attempts: first and maximum seconds.  Meanwhile, only this agentk has
#: the entries.
RECREATE_SECONDS, RECREATE_FIRST, RECREATE_MOST = 30.0, 0.25, 4.0

#: Pattern for a valid key of ``data``.
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")

#: Pattern for the number of writes in an annotation, because other clients may have
#: written any text in the annotation.
_COUNT = re.compile(r"[0-9]{1,18}")

#: Pattern for a value that may have a signature.
_SIGNED = re.compile(rf":[0-9a-f]{{{MAC}}}\"")

#: Prefix of the keys of objects whose names cannot be part of a key.
_ODD = "odd."


@attrs.frozen
class InventoryEntry:
    """
    Entry of one object in the inventory.

    :ivar uid: the uid of the live object that was applied; empty if the object has not
        been applied yet.
    :ivar held: the limit of the source that keeps the object until an operator approves
        its delete; empty if the delete is not held.
    :ivar applied: the result of `Settled.text`; empty if unknown.  In the ConfigMap, a
        signature of the entry follows, with a key from the Secret that contains the
        orders.
    :ivar claimed: the inventory that owns the object, although Git also contains it
        here; empty if this inventory owns it.
    :ivar leaves: whether the commit of the inventory does not contain the object, so
        that other agents do not give it back.
    :ivar is_signed: whether this agentk wrote the entry: for the object with this uid,
        or without a uid, in a pass that has not ended.  Other clients may write
        inventories, and could otherwise have any object deleted that has the annotation
        of this inventory, for instance an object of another installation.
    """

    uid: str = ""
    held: str = ""
    applied: str = ""
    claimed: str = ""
    leaves: bool = False
    is_signed: bool = True


@attrs.frozen(eq=False)
class Inventory:
    """
    Objects that a source has, or is about to have, in the cluster.

    :ivar commit: the last commit that was recorded.
    :ivar approval: the deletes that an operator approved.
    :ivar begun: the deletes that began without an approval.
    :ivar default_namespace: the ``default_namespace`` of the source when its objects
        were last applied and pruned; empty if no inventory exists yet.
    :ivar source: the repository and ref that the project follows, as information for
        other agents.
    :ivar selection: `ManifestProject.selection` of the last pass in which no delete
        waited for others; empty while a delete waits after the settings changed.
    :ivar of_other: the agentk that wrote the inventory last, if that agentk belongs to
        another agent or led with another Lease; empty if it is this agentk or unknown.
    :ivar is_lost: whether no inventory exists although the project was applied before.
    :ivar is_altered: whether other clients wrote data that the next `write` removes.
    """

    entries: Mapping[ObjectKey, InventoryEntry] = attrs.field(factory=dict)
    commit: str = ""
    approval: Approval = attrs.field(factory=Approval)
    default_namespace: str = ""
    of_other: str = ""
    source: str = ""
    selection: str = ""
    is_lost: bool = False
    is_altered: bool = False
    begun: BegunDeletes = attrs.field(factory=BegunDeletes)


class _Parts(NamedTuple):
    """
    Content of one inventory, with the ConfigMaps that contain it.

    :ivar of_other: see `Inventory`.
    :ivar parts: the ConfigMaps of the inventory; None for a part that is missing.
    :ivar is_altered: see `Inventory`.
    """

    of_other: str
    parts: list[dict[str, Any] | None]
    entries: dict[ObjectKey, InventoryEntry]
    is_altered: bool


class InventoryStore:
    """
    Reader and writer of the inventory of one project.

    :param inventory_id: ``<agent id>-<project id>``, as in cli-utils.
    :param namespace: the Namespace of the inventory's ConfigMaps.
    :param formers: other Namespaces where the ConfigMaps may still be, the most recent
        first: from earlier settings, an earlier version, or GitLab's agent.  The next
        `write` moves the ConfigMaps to *namespace*.  Empty names are ignored.
    :param writer: identifies this agentk, to detect inventories that another agentk
        wrote; None to detect none.
    :param orders: the orders for the project; None if operators cannot give any.
    :param clock: for retries.
    :param left: former Namespaces whose inventory agentk may not read or delete; each
        is logged when it is added.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubernetesClient,
        inventory_id: str,
        namespace: str,
        formers: Sequence[str] = (),
        writer: InventoryWriter | None = None,
        orders: OrderStore | None = None,
        *,
        clock: IReactorTime,
        left: set[str] | None = None,
    ) -> None:
        self._left: set[str] = set() if left is None else left
        self._client = client
        self._clock = clock
        self._writer = writer
        self._id = inventory_id
        self.namespace = namespace
        self._formers = [one for one in formers if one not in ("", namespace)]
        self._orders = orders
        #: Parts in *namespace* as they were last read or written, with their versions;
        #: None for a part that is missing.
        self._parts: list[dict[str, Any] | None] = []
        #: The `LastPass.number` of this execution; empty until it writes.
        self._number = ""
        #: Whether all parts have to be written, because other clients altered some.
        self._rewrites = False
        #: The Namespace of *formers* that had the inventory at the last read; empty if
        #: *namespace* had it, or no Namespace did.
        self._moves = ""

    async def read(self) -> Inventory:
        """
        Return the inventory, without writing it.

        :raises CallError: FAILED_PRECONDITION if the inventory cannot be read, or if an
            agentk that leads with another Lease writes it, so that no changes are
            allowed; other statuses as in `IKubernetesClient`.
        """
        orders = Orders()
        if self._orders is not None:
            # `confirm` and `check` read the orders again before the first change.
            orders = await self._orders.known()
        approval = orders.approval
        last = orders.last
        if last.namespace not in ("", self.namespace, *self._formers):
            self._formers.insert(0, last.namespace)
        first = await self._get(0)
        self._moves = ""
        if first is None:
            found = await self._read_former(orders)
        else:
            found = await self._read_parts(first, orders)
        if found is None:
            self._parts = []
            return Inventory(
                approval=approval, is_lost=bool(orders.history), begun=orders.begun
            )
        of_other, parts, entries, is_altered = found
        self._rewrites = is_altered
        first = parts[0]
        assert first is not None
        annotations = first["metadata"].get("annotations") or {}
        for key, entry in entries.items():
            if not entry.held and orders.is_held(key):
                # Mark the object as held: other clients may write inventories, and
                # could otherwise release the object.
                entries[key] = attrs.evolve(entry, held=HELD_BEFORE)
        self._parts = [] if self._moves else parts
        return Inventory(
            entries,
            annotations.get(COMMIT, ""),
            approval,
            last.default_namespace
            or annotations.get(DEFAULT, first["metadata"]["namespace"]),
            of_other,
            annotations.get(SOURCE, ""),
            self._selection(annotations, orders),
            is_altered=is_altered,
            begun=orders.begun,
        )

    def _selection(self, annotations: Mapping[str, str], orders: Orders) -> str:
        """
        Return the selection of the last pass; empty if the annotation may be another
        client's, which could shorten the wait for other agents.
        """
        found = annotations.get(SELECTION, "")
        is_known = self._orders is None or found == orders.last.selection
        return found if is_known else ""

    async def _read_former(self, orders: Orders) -> _Parts | None:
        """
        Return the inventory in the first former Namespace that contains a usable one;
        None if no former Namespace does.

        :raises CallError: as in `IKubernetesClient`.
        """
        for former in tuple(self._formers):
            if (found := await self._read_from(former, orders)) is not None:
                self._moves = former
                return found
        return None

    async def _read_from(self, former: str, orders: Orders) -> _Parts | None:
        """
        Return the inventory in a former Namespace; None if no usable inventory exists
        in that Namespace.

        An unusable inventory is ignored, because users of that Namespace may write
        ConfigMaps, and must not be able to stop the project.

        :raises CallError: as in `IKubernetesClient`.
        """
        first = await self._found(0, former)
        if first is None:
            return None
        try:
            if not self._is_labelled(first):
                raise self._unreadable(first, f"it has no label {LABEL}: {self._id}")
            self._refuse_from_git(first)
            return await self._read_parts(first, orders)
        except CallError as error:
            if error.status is not Status.FAILED_PRECONDITION:
                raise
            self._log.warn(
                "ignoring the former inventory {namespace}/{name}: {reason}",
                namespace=former,
                name=self._name(0),
                reason=clean(error.message, MAX_REASON, " "),
            )
        # Ignore the former inventory; it is not deleted either.
        self._formers.remove(former)
        return None

    async def _read_parts(self, first: dict[str, Any], orders: Orders) -> _Parts:
        """
        Return the content of the inventory that begins with *first*.

        :raises CallError: as `read`.
        """
        problems: list[str] = []
        parts = await self._all(first, problems)
        entries: dict[ObjectKey, InventoryEntry] = {}
        left = MAX_UNSIGNED
        for number, part in enumerate(parts):
            data = (part or {}).get("data") or {}
            kept: dict[str, str] = {}
            for text, value in data.items():
                if not left and _SIGNED.search(value) is None:
                    continue
                try:
                    key, entry = _read(text, value)
                except ValueError as error:
                    problems.append(str(error))
                    continue
                if self._orders is not None:
                    entry = _opened(key, entry, orders)
                if not entry.is_signed:
                    if not left:
                        continue
                    left -= 1
                kept[text] = value
                entries[key] = entry
            if part is not None and len(kept) < len(data):
                # Do not keep megabytes of other clients in memory.
                parts[number] = {**part, "data": kept}
        if not left:
            problems.append(f"more than {MAX_UNSIGNED} entries have no signature")
        if problems and self._orders is None:
            raise self._unreadable(first, problems[0])
        if problems:
            # Other clients may write inventories, and must not be able to stop the
            # project; the next `write` removes what they wrote.
            self._log.warn(
                "the inventory {namespace}/{name} was changed by another client, "
                "{count} problems such as: {reason}; objects that have no entry any "
                "more stay in the cluster when they leave Git",
                namespace=first["metadata"]["namespace"],
                name=self._name(0),
                count=len(problems),
                reason=clean(problems[0], MAX_REASON, " "),
            )
        mark = (first["metadata"].get("annotations") or {}).get(WRITER, "")
        of_other = await self._of_other(mark, entries, orders)
        return _Parts(of_other, parts, entries, bool(problems))

    def _is_labelled(self, part: dict[str, Any]) -> bool:
        labels = part["metadata"].get("labels") or {}
        return bool(labels.get(LABEL) == self._id)

    async def _of_other(
        self,
        mark: str,
        entries: Mapping[ObjectKey, InventoryEntry],
        orders: Orders,
    ) -> str:
        """
        Return the value of `Inventory.of_other` for the mark of a writer.

        :raises CallError: as `read`.
        """
        if self._writer is None:
            return ""
        own, last = self._writer.mark, orders.last.writer
        if mark in ("", own):
            if last not in ("", own):
                return clean(last, MAX_MARK)
            # Other clients may have removed the mark of another agentk.
            is_missing = not mark and self._writer.lease and orders.history
            return UNMARKED if is_missing else ""
        # Another agentk would not have kept this agentk's signatures, so another client
        # wrote the mark.
        signs = self._orders is not None
        has_signed = signs and any(one.is_signed for one in entries.values())
        # Nor would it keep inventories in the namespace of this agentk, whose Secret
        # names the last writer.
        wrote_last = last == own and self.namespace == self._writer.namespace
        if not (has_signed or wrote_last) and await self._writer.leads_elsewhere(mark):
            raise CallError(
                Status.FAILED_PRECONDITION,
                f"another agentk ({mark}: its agent and Lease) applies a repository "
                "of this name, and its agent has the same id: its objects would be "
                "taken for ours; stop one of the two, or give this agent another id",
            )
        return clean(mark, MAX_MARK)

    async def is_of_us(self, inventory_id: str) -> bool:
        """
        Return whether this agentk wrote another inventory, in the same namespace.

        :raises CallError: as in `IKubernetesClient`.
        """
        if self._writer is None:
            return False
        try:
            found = await self._client.get(
                _CONFIG_MAPS, f"inventory-{inventory_id}", self.namespace
            )
        except (CallError, ValueError) as error:
            # The inventory may not exist: its id comes from an annotation, which may
            # contain any text.
            if getattr(error, "status", Status.NOT_FOUND) is Status.NOT_FOUND:
                return False
            raise
        annotations = found["metadata"].get("annotations") or {}
        if owner_of(found) or annotations.get(WRITER) != self._writer.mark:
            return False
        # Also check the Secret: other clients may write inventories, and could
        # otherwise give away any object.
        return self._orders is None or await self._orders.has(
            inventory_id, self._writer.mark
        )

    async def confirm(self) -> None:
        """
        Check that the orders are unchanged since they were read.

        :raises CallError: ABORTED if an operator changed them in the meantime.
        """
        if self._orders is not None:
            await self._orders.confirmed()

    async def record(
        self,
        commit: str,
        held: Collection[ObjectKey],
        begun: Collection[ObjectKey],
        is_lost: bool = False,
    ) -> None:
        """
        Record deletes in the Secret with the orders: other clients may remove them from
        the inventory.

        :param held: objects whose deletes wait for an approval.
        :param begun: objects that *commit* deletes without an approval.
        :param is_lost: see `Inventory`.
        :raises CallError: as `OrderStore.change`.
        """
        if self._orders is None:
            return

        def recorded(orders: Orders) -> Orders:
            after = orders.holding(held, ())
            after = attrs.evolve(after, lost=orders.lost or is_lost)
            if not begun:
                return after
            return attrs.evolve(after, begun=orders.begun.adding(commit, begun))

        known = await self._orders.known()
        if recorded(known) != known:
            await self._orders.change(recorded)

    async def check(self) -> None:
        """
        Check that inventory and orders are unchanged since they were read or written.

        :raises CallError: ABORTED if another agentk or an operator wrote to them, so
            that they must be read again before any change.
        """
        await self.confirm()
        first = await self._get(0)
        versions = [
            one["metadata"]["resourceVersion"]
            for one in (first, *self._parts[:1])
            if one
        ]
        if len(versions) == 1 or len(set(versions)) > 1:
            raise CallError(Status.ABORTED, "the inventory has changed in the meantime")

    async def write(self, inventory: Inventory) -> None:
        """
        Replace the inventory that was last read or written.

        :raises CallError: ABORTED if another agentk wrote to the inventory in the
            meantime, so that it must be read again before any change;
            RESOURCE_EXHAUSTED if the inventory is too large.
        """
        facts = {COMMIT: inventory.commit, DEFAULT: inventory.default_namespace}
        if inventory.source:
            facts[SOURCE] = inventory.source
        if inventory.selection:
            facts[SELECTION] = inventory.selection
        if self._writer is not None and self._writer.lease:
            facts[WRITER] = self._writer.mark
        if self._orders is not None and inventory.entries:
            seal = await self._orders.seal()
            if not self._number:
                mark = str(facts.get(WRITER, ""))
                self._number = await self._orders.begin_writing(mark, self.namespace)
            entries = {
                key: _sealed(key, entry, seal, self._number)
                for key, entry in inventory.entries.items()
            }
            inventory = attrs.evolve(inventory, entries=entries)
        inventory, count, datas = self._fitting(inventory)
        moved = self._moves
        if moved:
            # Write part 0 last: until part 0 exists, the former inventory is in effect.
            written = [
                await self._write_part(number, datas[number], facts, count, None)
                for number in reversed(range(count))
            ]
            self._parts, self._moves = [*reversed(written)], ""
        else:
            await self._replace(inventory, count, datas, facts)
        self._rewrites = False
        await self._remove_former(moved)

    @property
    def has_signed(self) -> bool:
        """Whether the entries have the signature of this execution."""
        return bool(self._number)

    @property
    def is_interrupted(self) -> bool:
        """
        Whether an earlier execution was interrupted, so that the entries may have
        signatures of several executions.
        """
        orders = self._orders
        return not self._number and orders is not None and bool(orders.latest.last.open)

    async def end(self) -> None:
        """
        Record that this execution has ended, so that no earlier signature is valid.

        :raises CallError: as `OrderStore.change`.
        """
        if self._orders is not None and self._number:
            await self._orders.end_writing(self._number)

    async def release(self) -> None:
        """
        Note that all objects of the inventory are gone, so that other agents stop
        waiting.

        :raises CallError: ABORTED if the inventory was written in the meantime; other
            statuses as in `IKubernetesClient`.
        """
        if not self._parts or (first := self._parts[0]) is None:
            return
        metadata = first["metadata"]
        change = {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {SOURCE: None},
        }
        await self._client.patch(
            _CONFIG_MAPS,
            metadata["name"],
            {"metadata": change},
            self.namespace,
            field_manager=FIELD_MANAGER,
        )

    async def _replace(
        self,
        inventory: Inventory,
        count: int,
        datas: list[dict[str, str]],
        facts: dict[str, str],
    ) -> None:
        before = len(self._parts)
        if count < before:
            count = 1 << (before - 1).bit_length()
            datas = self._spread(inventory.entries, count)
        known = self._annotations()
        is_same = all(known.get(name) == fact for name, fact in facts.items())
        early = facts
        if not is_same:
            # Other agents act as soon as part 0 names the commit, so all other parts
            # must contain their entries before that.
            was = known.get(COMMIT, "")
            early = {**facts, COMMIT: "" if was == facts[COMMIT] else was}
        if 1 < count != before:
            # The old parts stay until the new parts contain the entries that move to
            # them.
            old = self._data(0) if before else {}
            await self._put(0, old, early, max(before, 1))
            for number in range(max(before, 1), count):
                await self._put(number, datas[number], early, count)
        others = [
            number
            for number in range(1, count)
            if self._rewrites or self._data(number) != datas[number]
        ]
        if others:
            await self._put(0, datas[0], early, count)
            for number in others:
                await self._put(number, datas[number], early, count)
        if not (others and is_same):
            await self._put(0, datas[0], facts, count)

    def _fitting(
        self, inventory: Inventory
    ) -> tuple[Inventory, int, list[dict[str, str]]]:
        """
        Return the inventory as it is written, and the result of `_split`.

        :raises CallError: RESOURCE_EXHAUSTED if the inventory is too large.
        """
        try:
            return inventory, *self._split(inventory.entries)
        except CallError:
            signed = {k: one for k, one in inventory.entries.items() if one.is_signed}
            if len(signed) == len(inventory.entries):
                raise
        # Other clients may have added any number of entries, and must not be able to
        # stop the project.
        self._log.warn(
            "the inventory {namespace}/{name} is too large: removing {count} entries "
            "that this agentk did not write",
            namespace=self.namespace,
            name=self._name(0),
            count=len(inventory.entries) - len(signed),
        )
        return attrs.evolve(inventory, entries=signed), *self._split(signed)

    def _annotations(self) -> dict[str, str]:
        """Return the annotations of part 0 as it was last read or written."""
        first = self._parts[0] if self._parts else None
        return (first or {}).get("metadata", {}).get("annotations") or {}

    def _data(self, number: int) -> dict[str, str]:
        """Return the data of a part as it was last read or written."""
        return (self._parts[number] or {}).get("data") or {}

    def _split(
        self, entries: Mapping[ObjectKey, InventoryEntry]
    ) -> tuple[int, list[dict[str, str]]]:
        """Return the smallest number of parts that hold the entries, and their data."""
        count = 1
        while count <= MAX_PARTS:
            datas = self._spread(entries, count)
            if all(_size(data) <= MAX_PART for data in datas):
                return count, datas
            count *= 2
        raise CallError(
            Status.RESOURCE_EXHAUSTED,
            f"{len(entries)} objects are more than an inventory can hold",
        )

    @staticmethod
    def _spread(
        entries: Mapping[ObjectKey, InventoryEntry], count: int
    ) -> list[dict[str, str]]:
        datas: list[dict[str, str]] = [{} for _ in range(count)]
        for key in sorted(entries):
            text, value = _written(key, entries[key])
            datas[zlib.crc32(text.encode()) % count][text] = value
        return datas

    def _name(self, number: int) -> str:
        return part_name(self._id, number)

    async def _remove_former(self, moved: str) -> None:
        """
        Delete the parts in the former Namespaces, part 0 last.

        A failure is only logged: the inventory is read from the new Namespace from now
        on.

        :param moved: the inventory's former Namespace; empty if the inventory did
            not move.  In any other Namespace, the old inventory may belong to
            an agentk of another kas, whose agent has the same id.
        """
        formers, self._formers = self._formers, []
        for former in formers:
            try:
                await self._delete_parts(former, former == moved)
            except CallError as error:
                if error.status is Status.PERMISSION_DENIED:
                    self._leave(former, error)
                    continue
                self._log.warn(
                    "cannot delete the former inventory {namespace}/{name}, delete it: "
                    "{reason}",
                    namespace=former,
                    name=self._name(0),
                    reason=clean(error.message, MAX_REASON, " "),
                )

    def _leave(self, former: str, error: CallError) -> None:
        """Log once that an inventory in a former Namespace stays if it exists."""
        if former not in self._left:
            self._left.add(former)
            self._log.warn(
                "leaving the former inventory {namespace}/{name}, if it exists: agentk "
                "may not read and delete it; delete it, or permit this: {reason}",
                namespace=former,
                name=self._name(0),
                reason=clean(error.message, MAX_REASON, " "),
            )

    async def _delete_parts(self, former: str, moved: bool) -> None:
        found: list[dict[str, Any]] = []
        while len(found) < MAX_PARTS:
            part = await self._found(len(found), former)
            if part is None:
                break
            if not (moved or self._may_be_ours(part)):
                break
            found.append(part)
        for number, part in reversed(list(enumerate(found))):
            await self._client.delete(
                _CONFIG_MAPS,
                self._name(number),
                former,
                uid=part["metadata"]["uid"],
                resource_version=part["metadata"]["resourceVersion"],
            )

    def _may_be_ours(self, part: dict[str, Any]) -> bool:
        """
        Return whether a part belongs to this project and no other agentk wrote it.
        """
        if not self._is_labelled(part):
            return False
        mark = (part["metadata"].get("annotations") or {}).get(WRITER, "")
        return self._writer is None or mark in ("", self._writer.mark)

    async def _stored(
        self, object_: dict[str, Any], known: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Write one ConfigMap, replacing the *known* version only."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        metadata = object_["metadata"]
        written: dict[str, Any]
        method = "POST"
        if known is not None and (
            known.get("immutable") or "deletionTimestamp" in known["metadata"]
        ):
            recreating = Deferred.fromCoroutine(self._recreated(path, object_, known))
            return await shielded(recreating, RECREATE_SECONDS, self._clock)
        if known is not None:
            metadata["resourceVersion"] = known["metadata"]["resourceVersion"]
            method, path = "PUT", f"{path}/{metadata['name']}"
        try:
            written = await self._client.json(method, path, object_)
        except CallError as error:
            raise self._explained(error) from None
        return written

    async def _recreated(
        self, path: str, object_: dict[str, Any], known: dict[str, Any]
    ) -> dict[str, Any]:
        """
        Delete and create a ConfigMap that another client made immutable or deleted, so
        that nobody can change it any more.

        :raises CallError: as `_stored`.
        """
        await self._delete(path, known)
        until = self._clock.seconds() + RECREATE_SECONDS
        backoff = Backoff(lambda: 1.0, RECREATE_FIRST, RECREATE_MOST)
        while True:
            try:
                created: dict[str, Any]
                created = await self._client.json("POST", path, object_)
            except CallError as error:
                is_over = self._clock.seconds() >= until
                if is_over or error.status is Status.ABORTED:
                    raise self._explained(error) from None
                self._log.warn(
                    "cannot create the inventory {namespace}/{name}, which was deleted "
                    "because nobody could change it any more; retrying: {reason}",
                    namespace=self.namespace,
                    name=object_["metadata"]["name"],
                    reason=clean(error.message, MAX_REASON, " "),
                )
                await deferLater(self._clock, backoff.failed())
            else:
                return created

    async def _delete(self, path: str, known: dict[str, Any]) -> None:
        """
        Delete a ConfigMap if it is unchanged.

        :raises CallError: as `_stored`.
        """
        try:
            known = await self._without_finalizers(path, known)
            metadata = known["metadata"]
            await self._client.delete(
                _CONFIG_MAPS,
                metadata["name"],
                self.namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
        except CallError as error:
            # If only the response was lost, the ConfigMap is gone; otherwise the API
            # server refuses to create it.
            if error.status not in UNDECIDED:
                raise self._explained(error) from None

    async def _without_finalizers(
        self, path: str, known: dict[str, Any]
    ) -> dict[str, Any]:
        """
        Remove the finalizers of a ConfigMap; agentk sets none, and nobody may remove
        those of another client.

        :raises CallError: ABORTED if the ConfigMap has changed.
        """
        metadata = known["metadata"]
        if not metadata.get("finalizers"):
            return known
        changed = known | {"metadata": metadata | {"finalizers": []}}
        written: dict[str, Any]
        written = await self._client.json("PUT", f"{path}/{metadata['name']}", changed)
        return written

    async def _all(
        self, first: dict[str, Any], problems: list[str]
    ) -> list[dict[str, Any] | None]:
        """
        Return all parts of the inventory, from the Namespace of its first part.

        :param problems: receives the problems of the parts.
        """
        metadata = first["metadata"]
        count = (metadata.get("annotations") or {}).get(PARTS, "1")
        is_count = count in {str(2**power) for power in range(MAX_PARTS.bit_length())}
        if not is_count:
            problems.append(f"{PARTS} cannot be {count[:40]!r}")
        parts: list[dict[str, Any] | None] = [first]
        for number in range(1, int(count) if is_count else MAX_PARTS):
            part = await self._get(number, metadata["namespace"])
            if part is None and not is_count:
                break
            if part is None:
                problems.append(f"part {number} is gone")
            parts.append(part)
        while parts[-1] is None:
            # Other clients may write any number of parts.
            del parts[-1]
        return parts

    async def _get(self, number: int, namespace: str = "") -> dict[str, Any] | None:
        found = await self._found(number, namespace or self.namespace)
        if found is not None and self._orders is None:
            self._refuse_from_git(found)
        return found

    async def _found(self, number: int, namespace: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self._client.get(
                _CONFIG_MAPS, self._name(number), namespace
            )
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                return None
            if namespace != self.namespace and error.status is Status.PERMISSION_DENIED:
                # The inventory cannot be this agentk's, because its writer would have
                # had this permission; or the policy of the cluster's owner denies it.
                self._leave(namespace, error)
                return None
            raise self._explained(error) from None
        return found

    def _explained(self, error: CallError) -> CallError:
        if error.status is not Status.PERMISSION_DENIED:
            return error
        return CallError(
            error.status,
            f"agentk keeps its inventories in ConfigMaps of {self.namespace}, but may "
            "not access them: grant get, create, update and delete of configmaps there "
            f"(see docs/gitops.rst): {error.message}",
        )

    def _refuse_from_git(self, found: dict[str, Any]) -> None:
        """
        Refuse a ConfigMap that was applied from Git, whose author could claim any
        object.

        Signatures make this check unnecessary, and other clients could stop the project
        with the annotation.

        :raises CallError: if agentk did not write the ConfigMap.
        """
        if owner := owner_of(found):
            name = found["metadata"]["name"]
            raise self._unreadable(
                found, f"{name} was applied from Git, because it has {OWNER}: {owner}"
            )

    async def _put(
        self, number: int, data: dict[str, str], facts: dict[str, str], count: int
    ) -> None:
        known = self._parts[number] if number < len(self._parts) else None
        is_same = known is not None and (known.get("data") or {}) == data
        if number and is_same and not self._rewrites:
            return
        written = await self._write_part(number, data, facts, count, known)
        self._parts[number : number + 1] = [written]

    async def _write_part(
        self,
        number: int,
        data: dict[str, str],
        facts: dict[str, str],
        count: int,
        known: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """Write one part in place of *known*, and return it."""
        metadata: dict[str, Any] = {
            "name": self._name(number),
            "namespace": self.namespace,
            "labels": {LABEL: self._id},
            "annotations": {},
        }
        if number == 0:
            before = (known or {}).get("metadata", {}).get("annotations") or {}
            writes = before.get(WRITES, "0")
            metadata["annotations"] = {
                PARTS: str(count),
                WRITES: str(int(writes) + 1 if _COUNT.fullmatch(writes) else 1),
                **facts,
            }
        elif known is None:
            # A part may exist, left over from an interrupted growth or move.
            known = await self._get(number)
        object_ = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": data,
        }
        return await self._stored(object_, known)

    def _unreadable(self, part: dict[str, Any], why: str) -> CallError:
        name = f"{part['metadata']['namespace']}/{self._name(0)}"
        return CallError(
            Status.FAILED_PRECONDITION, f"the inventory {name} cannot be read: {why}"
        )


def part_name(inventory_id: str, number: int) -> str:
    """Return the name of the ConfigMap of one part."""
    return f"inventory-{inventory_id}" + (f"-{number}" if number else "")


def entry_of(data: Mapping[str, str], key: ObjectKey) -> InventoryEntry | None:
    """
    Return the entry of an object in the ``data`` of one part; None if the part has no
    such entry.
    """
    text, _ = _written(key, InventoryEntry())
    if text not in data:
        return None
    try:
        found, entry = _read(text, data[text])
    except ValueError:
        return None
    return entry if found == key else None


def _sealed(
    key: ObjectKey, entry: InventoryEntry, seal: str, number: str
) -> InventoryEntry:
    """Sign an entry, unless another client wrote it, and the reason why it is held."""
    if entry.held:
        # As it is read again.
        held = clean(entry.held, MAX_REASON)
        signature = _signature(seal, *key, entry.uid, number, "held", held)
        entry = attrs.evolve(entry, held=f"{held}:{signature}")
    if not entry.is_signed:
        return entry
    signature = _signature(seal, *_signed_fields(key, entry, entry.applied, number))
    return attrs.evolve(entry, applied=f"{entry.applied}:{signature}")


def _opened(key: ObjectKey, entry: InventoryEntry, orders: Orders) -> InventoryEntry:
    """
    Return an entry, and whether agentk signed it; without a signature, ``applied`` is
    removed, and ``held`` also.

    Other clients may write inventories, and could otherwise hide that an object differs
    from Git, or hold its delete.
    """
    seal, last = orders.seal, orders.last
    applied, _, signature = entry.applied.rpartition(":")
    held, _, held_signature = entry.held.rpartition(":")

    def signs(signature: str, *fields: Any) -> bool:
        return signature.isascii() and hmac.compare_digest(
            signature, _signature(seal, *fields)
        )

    numbers = last.numbers if seal else ()
    if held and not any(
        signs(held_signature, *key, entry.uid, one, "held", held) for one in numbers
    ):
        held = ""
    if not entry.uid:
        # The entry is for an object that an interrupted execution may have created.
        numbers = last.open if seal else ()
    is_signed = any(
        signs(signature, *_signed_fields(key, entry, applied, one)) for one in numbers
    )
    return attrs.evolve(
        entry, applied=applied if is_signed else "", held=held, is_signed=is_signed
    )


def _signed_fields(
    key: ObjectKey, entry: InventoryEntry, applied: str, number: str
) -> list[Any]:
    """
    Return the fields that agentk signs.

    Few entries have any of the last two, which earlier versions did not sign.
    """
    more = [entry.claimed, entry.leaves] if entry.claimed or entry.leaves else []
    return [*key, entry.uid, applied, number, *more]


def _signature(seal: str, *fields: Any) -> str:
    text = json.dumps(fields)
    return hmac.new(seal.encode(), text.encode(), "sha256").hexdigest()[:MAC]


def _size(data: Mapping[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in data.items())


def _written(key: ObjectKey, entry: InventoryEntry) -> tuple[str, str]:
    """Return the key and value of an object in ``data``."""
    known: dict[str, Any] = {"uid": entry.uid} if entry.uid else {}
    if entry.held:
        known["held"] = entry.held
    if entry.applied:
        known["applied"] = entry.applied
    if entry.claimed:
        known["claimed"] = entry.claimed
    if entry.leaves:
        known["leaves"] = True
    name = key.name.replace(":", "__")
    text = f"{key.namespace}_{name}_{key.group}_{key.kind}"
    if _DATA_KEY.fullmatch(text) is None or "_" in key.name:
        # Names of RBAC objects can contain any character.
        text = _ODD + sha256("\0".join(key).encode()).hexdigest()
        known["key"] = list(key)
    return text, json.dumps(known, separators=(",", ":")) if known else ""


def _read(text: str, value: str) -> tuple[ObjectKey, InventoryEntry]:
    """
    Parse a key and value of ``data``.

    :raises ValueError: if the key or the value is not in the form that agentk and
        cli-utils write.
    """
    try:
        known = json.loads(value) if value else {}
    except (ValueError, RecursionError):
        known = None
    # Newer versions of cli-utils also store a status in the value, which agentk does
    # not need.
    if not isinstance(known, dict) or not isinstance(known.get("uid", ""), str):
        raise ValueError(f"another client wrote the value of {text!r}")
    held, applied, claimed = (
        str(known.get(name, "")) for name in ("held", "applied", "claimed")
    )
    uid, leaves = known.get("uid", ""), known.get("leaves") is True
    limits = ((uid, MAX_UID), (applied, MAX_APPLIED), (claimed, MAX_CLAIMED))
    if any(len(one) > most or not one.isprintable() for one, most in limits):
        raise ValueError(f"another client wrote the value of {clean(text, 300)}")
    # The reason is only shown.
    held = clean(held, MAX_REASON + MAC + 1)
    entry = InventoryEntry(uid, held, applied, claimed, leaves)
    if text.startswith(_ODD):
        parts = known.get("key")
        if isinstance(parts, list) and [type(one) for one in parts] == [str] * 4:
            key = ObjectKey(*parts)
            if _is_key(key):
                return key, entry
    else:
        namespace, _, rest = text.partition("_")
        rest, _, kind = rest.rpartition("_")
        name, separator, group = rest.rpartition("_")
        key = ObjectKey(group, kind, namespace, name.replace("__", ":"))
        if separator and name and kind and _is_key(key):
            return key, entry
    raise ValueError(f"{text!r} does not name an object")


def _is_key(key: ObjectKey) -> bool:
    """Return whether an object can have this key: other clients may write any text."""
    if any(len(part) > most for part, most in zip(key, MAX_KEY, strict=True)):
        return False
    try:
        "".join(key).encode()
    except UnicodeEncodeError:
        return False
    return True
