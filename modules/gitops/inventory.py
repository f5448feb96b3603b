"""
Which objects are in the cluster because of a source.

    ConfigMap inventory-ID      part 0, and how many parts there are
    ConfigMap inventory-ID-1    part 1, where one is not enough

Each key of ``data`` is an object.  Keys, names and the label are those of cli-utils, so
that what GitLab's agent left is found.

An inventory is never less than what exists: what is about to be applied is written
before, what was deleted is taken out after.  An object's part is a hash of its key, so
a write that stops in the middle leaves each part at what it was or will be, and both
are enough.  Part 0 is written first, with the version that was read: an agentk that has
lost its leadership fails there.  As it may have nothing to write, it asks before each
delete, too, and after it has waited.
"""

from __future__ import annotations

import hmac
import json
import re
import zlib
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import attrs
from twisted.logger import Logger

from modules.gitops.brakes import OWNER, owner_of
from modules.gitops.manifests import ObjectKey
from modules.gitops.orders import Approval, Orders, OrderStore
from modules.gitops.ownership import FIELD_MANAGER
from modules.gitops.writer import InventoryWriter
from tunnel.errors import CallError, Status
from tunnel.interfaces import IKubernetesClient, KubernetesResource
from tunnel.util.texts import clean

__all__ = [
    "COMMIT",
    "LABEL",
    "MAX_PARTS",
    "PARTS",
    "SOURCE",
    "WRITER",
    "Inventory",
    "InventoryEntry",
    "InventoryStore",
    "entry_of",
]

#: Source: kubernetes-sigs/cli-utils, pkg/common.
LABEL = "cli-utils.sigs.k8s.io/inventory-id"

#: Ours: of part 0, how many there are; how often it was written; what it is of.
PARTS = "txkas/inventory-parts"
WRITES = "txkas/inventory-writes"
COMMIT = "txkas/commit"

#: Bytes of keys and values in one part.  A ConfigMap has room for a megabyte.
MAX_PART = 700 * 1024

#: Parts, always a power of two: objects of the largest set that is read.
MAX_PARTS = 16

_CONFIG_MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)

#: Ours as well: what ``default_namespace`` was.
DEFAULT = "txkas/default-namespace"

#: ... and which agentk wrote it last (`InventoryWriter.mark`).
WRITER = "txkas/writer"

#: ... and which repository and ref it follows.
SOURCE = "txkas/source"

#: Why an object is held that an inventory does not have as held any more.
HELD_BEFORE = "it waited for an approval before"

#: Characters of a signature, in hexadecimal.
MAC = 32

#: Characters of a writer's mark, as it is shown.
MAX_MARK = 300

#: Characters of the reason in a log line: others may have written parts of it.
MAX_REASON = 1000

#: What a key of ``data`` can be.
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")

#: A number of writes that agentk counted; others may have written anything there.
_COUNT = re.compile(r"[0-9]{1,18}")

#: How keys begin that hold a name which no key can.
_ODD = "odd."


@attrs.frozen
class InventoryEntry:
    """
    What is known of one object.

    :ivar uid: of the live object that was applied; empty: it was about to be.
    :ivar held: why a limit of the source keeps it, until an operator
        approves its delete.
    :ivar applied: what it was applied with, as `Settled` writes it; empty: not known.
        In the ConfigMap it has a signature, whose key is in the Secret with the orders.
    :ivar claimed: the inventory that has the object, which Git has here as well; empty:
        this one has it.
    """

    uid: str = ""
    held: str = ""
    applied: str = ""
    claimed: str = ""


@attrs.frozen(eq=False)
class Inventory:
    """
    What a source has in the cluster, or is about to have.

    :ivar commit: the last one that was written down.
    :ivar approval: the deletes that an operator approved.
    :ivar default_namespace: what it was when objects were last applied and pruned;
        empty: there is no inventory yet.
    :ivar source: which repository and ref it follows; for other agents to know.
    :ivar of_other: which agentk wrote it last, where that is of another agent than this
        one, or led with another Lease; empty: it is ours, or is not known.
    """

    entries: Mapping[ObjectKey, InventoryEntry] = attrs.field(factory=dict)
    commit: str = ""
    approval: Approval = attrs.field(factory=Approval)
    default_namespace: str = ""
    of_other: str = ""
    source: str = ""


class _Parts(NamedTuple):
    """
    The content of one inventory.

    :ivar of_other: see `Inventory`.
    :ivar parts: its ConfigMaps.
    """

    of_other: str
    parts: list[dict[str, Any]]
    entries: dict[ObjectKey, InventoryEntry]


class InventoryStore:
    """
    The inventory of one project.

    :param inventory_id: as cli-utils names it: ``<agent id>-<project id>``.
    :param namespace: of its ConfigMaps.
    :param former: the Namespace that they may be in instead, from an earlier version or
        from GitLab's agent; the next `write` moves them.  Empty: there is none.
    :param writer: this agentk; None: no other one exists.
    :param orders: of the project; None: no operator can give any.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubernetesClient,
        inventory_id: str,
        namespace: str,
        former: str = "",
        writer: InventoryWriter | None = None,
        orders: OrderStore | None = None,
    ) -> None:
        self._client = client
        self._writer = writer
        self._id = inventory_id
        self.namespace = namespace
        self._former = "" if former == namespace else former
        self._orders = orders
        #: Parts in *namespace* as they were read or written last, with their versions.
        self._parts: list[dict[str, Any]] = []
        #: What was read last is in *former*.
        self._moves = False

    async def read(self) -> Inventory:
        """
        Return the inventory; nothing is written, wherever it is.

        :raises CallError: FAILED_PRECONDITION, it cannot be read, or an agentk that
            leads with another Lease writes it, and nothing may be changed; as
            `IKubernetesClient`.
        """
        orders = Orders()
        if self._orders is not None:
            # `confirm` and `check` read them again before anything is changed.
            orders = await self._orders.known()
        approval = orders.approval
        first = await self._get(0)
        self._moves = False
        if first is None:
            found = await self._read_former()
            self._moves = found is not None
        else:
            found = await self._read_parts(first)
        if found is None:
            self._parts = []
            return Inventory(approval=approval)
        of_other, parts, entries = found
        first = parts[0]
        annotations = first["metadata"].get("annotations") or {}
        if self._orders is not None:
            entries = {
                key: _opened(key, entry, orders.seal) for key, entry in entries.items()
            }
        for key, entry in entries.items():
            if not entry.held and orders.is_held(key):
                # Others may write inventories, and could let it go.
                entries[key] = attrs.evolve(entry, held=HELD_BEFORE)
        self._parts = [] if self._moves else parts
        return Inventory(
            entries,
            annotations.get(COMMIT, ""),
            approval,
            annotations.get(DEFAULT, first["metadata"]["namespace"]),
            of_other,
            annotations.get(SOURCE, ""),
        )

    async def _read_former(self) -> _Parts | None:
        """
        Return what the former Namespace has; None: nothing that can be used.

        Its users may write ConfigMaps there, and must not stop the project.

        :raises CallError: as `IKubernetesClient`.
        """
        if not self._former:
            return None
        first = await self._found(0, self._former)
        if first is None:
            return None
        try:
            if not self._is_labelled(first):
                raise self._unreadable(first, f"it has no label {LABEL}: {self._id}")
            return await self._read_parts(self._ours(first))
        except CallError as error:
            if error.status is not Status.FAILED_PRECONDITION:
                raise
            self._log.warn(
                "the former inventory {namespace}/{name} is left out and left there: "
                "{reason}",
                namespace=self._former,
                name=self._name(0),
                reason=clean(error.message, MAX_REASON, " "),
            )
        # Nor is it deleted.
        self._former = ""
        return None

    async def _read_parts(self, first: dict[str, Any]) -> _Parts:
        """
        Return what the inventory that begins with *first* says.

        :raises CallError: as `read`.
        """
        mark = (first["metadata"].get("annotations") or {}).get(WRITER, "")
        of_other = await self._of_other(mark)
        parts = await self._all(first)
        entries: dict[ObjectKey, InventoryEntry] = {}
        for part in parts:
            for key, value in (part.get("data") or {}).items():
                try:
                    entries.update([_read(key, value)])
                except ValueError as error:
                    raise self._unreadable(part, str(error)) from None
        return _Parts(of_other, parts, entries)

    def _is_labelled(self, part: dict[str, Any]) -> bool:
        labels = part["metadata"].get("labels") or {}
        return bool(labels.get(LABEL) == self._id)

    async def _of_other(self, mark: str) -> str:
        """See `Inventory`; :raises CallError: as `read`."""
        if self._writer is None or mark in ("", self._writer.mark):
            return ""
        if await self._writer.leads_elsewhere(mark):
            raise CallError(
                Status.FAILED_PRECONDITION,
                f"another agentk ({mark}: its agent, and the Lease with which it "
                "leads) applies a repository of this name, and its agent has our id: "
                "its objects would be taken for ours; stop one of them, or give this "
                "agent another id",
            )
        return clean(mark, MAX_MARK)

    async def is_of_us(self, inventory_id: str) -> bool:
        """
        Tell whether this agentk wrote another inventory, in the same namespace.

        :raises CallError: as `IKubernetesClient`.
        """
        if self._writer is None:
            return False
        try:
            found = await self._client.get(
                _CONFIG_MAPS, f"inventory-{inventory_id}", self.namespace
            )
        except (CallError, ValueError) as error:
            # An annotation may name anything.
            if getattr(error, "status", Status.NOT_FOUND) is Status.NOT_FOUND:
                return False
            raise
        annotations = found["metadata"].get("annotations") or {}
        if owner_of(found) or annotations.get(WRITER) != self._writer.mark:
            return False
        # Others may write inventories, and could give away the objects of any.
        return self._orders is None or await self._orders.has(inventory_id)

    async def confirm(self) -> None:
        """
        Check that the orders are as they were read first.

        :raises CallError: ABORTED, an operator changed them since then.
        """
        if self._orders is not None:
            await self._orders.confirmed()

    async def check(self) -> None:
        """
        Check that inventory and orders are as they were read or written last.

        :raises CallError: ABORTED, another agentk or an operator wrote since then: read
            it again, and change nothing before.
        """
        await self.confirm()
        first = await self._get(0)
        versions = [
            one["metadata"]["resourceVersion"]
            for one in (first, *self._parts[:1])
            if one
        ]
        if len(versions) == 1 or len(set(versions)) > 1:
            raise CallError(Status.ABORTED, "the inventory has changed meanwhile")

    async def write(self, inventory: Inventory) -> None:
        """
        Replace what was read or written last.

        :raises CallError: ABORTED, another agentk wrote since then: read it again, and
            change nothing before.  RESOURCE_EXHAUSTED, it is too large.
        """
        facts = {COMMIT: inventory.commit, DEFAULT: inventory.default_namespace}
        if inventory.source:
            facts[SOURCE] = inventory.source
        if self._writer is not None and self._writer.lease:
            facts[WRITER] = self._writer.mark
        if self._orders is not None and any(
            one.applied for one in inventory.entries.values()
        ):
            seal = await self._orders.seal()
            entries = {
                key: _sealed(key, entry, seal)
                for key, entry in inventory.entries.items()
            }
            inventory = attrs.evolve(inventory, entries=entries)
        count, datas = self._split(inventory.entries)
        moved = self._moves
        if moved:
            # Part 0 comes last: until it exists, the former inventory counts.
            written = [
                await self._write_part(number, datas[number], facts, count, None)
                for number in reversed(range(count))
            ]
            self._parts, self._moves = written[::-1], False
        else:
            await self._replace(inventory, count, datas, facts)
        await self._remove_former(moved)

    async def release(self) -> None:
        """
        Note that no object is left of what was read: other agents wait for it no more.

        :raises CallError: ABORTED, it was written since then; as `IKubernetesClient`.
        """
        if not self._parts:
            return
        metadata = self._parts[0]["metadata"]
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
            count, datas = before, self._spread(inventory.entries, before)
        if 1 < count != before:
            # What is there stays until the new parts hold what moves into them.
            old = (self._parts[0].get("data") or {}) if before else {}
            await self._put(0, old, facts, max(before, 1))
            for number in range(max(before, 1), count):
                await self._put(number, datas[number], facts, count)
        for number in range(count):
            await self._put(number, datas[number], facts, count)

    def _split(
        self, entries: Mapping[ObjectKey, InventoryEntry]
    ) -> tuple[int, list[dict[str, str]]]:
        """As few parts as hold them."""
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
        return f"inventory-{self._id}" + (f"-{number}" if number else "")

    async def _remove_former(self, moved: bool) -> None:
        """
        Delete the parts in the former Namespace, part 0 last.

        If they cannot be deleted they stay: the inventory is read from the new
        Namespace from now on.

        :param moved: they are here now.  If they are not, another agentk may need what
            it wrote there: of a kas that has an agent of the same id.
        """
        former, self._former = self._former, ""
        try:
            await self._delete_parts(former, moved)
        except CallError as error:
            self._log.warn(
                "the former inventory {namespace}/{name} was not deleted, delete it: "
                "{reason}",
                namespace=former,
                name=self._name(0),
                reason=clean(error.message, MAX_REASON, " "),
            )

    async def _delete_parts(self, former: str, moved: bool) -> None:
        found: list[dict[str, Any]] = []
        while former and len(found) < MAX_PARTS:
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
        """Whether it is of this project, and no other agentk wrote it."""
        if not self._is_labelled(part):
            return False
        mark = (part["metadata"].get("annotations") or {}).get(WRITER, "")
        return self._writer is None or mark in ("", self._writer.mark)

    async def _stored(
        self, object_: dict[str, Any], known: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Write one ConfigMap, in place of the *known* version alone."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        metadata = object_["metadata"]
        written: dict[str, Any]
        method = "POST"
        if known is not None:
            metadata["resourceVersion"] = known["metadata"]["resourceVersion"]
            method, path = "PUT", f"{path}/{metadata['name']}"
        try:
            written = await self._client.json(method, path, object_)
        except CallError as error:
            raise self._explained(error) from None
        return written

    async def _all(self, first: dict[str, Any]) -> list[dict[str, Any]]:
        """All parts, where the first one is."""
        metadata = first["metadata"]
        count = (metadata.get("annotations") or {}).get(PARTS, "1")
        if count not in {str(2**power) for power in range(MAX_PARTS.bit_length())}:
            raise self._unreadable(first, f"{PARTS} cannot be {count[:40]!r}")
        parts = [first]
        for number in range(1, int(count)):
            part = await self._get(number, metadata["namespace"])
            if part is None:
                raise self._unreadable(first, f"part {number} is gone")
            parts.append(part)
        return parts

    async def _get(self, number: int, namespace: str = "") -> dict[str, Any] | None:
        found = await self._found(number, namespace or self.namespace)
        return None if found is None else self._ours(found)

    async def _found(self, number: int, namespace: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self._client.get(
                _CONFIG_MAPS, self._name(number), namespace
            )
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                return None
            if namespace != self.namespace and error.status is Status.PERMISSION_DENIED:
                # Whoever wrote an inventory there had this right.
                return None
            raise self._explained(error) from None
        return found

    def _explained(self, error: CallError) -> CallError:
        if error.status is not Status.PERMISSION_DENIED:
            return error
        return CallError(
            error.status,
            f"agentk keeps its inventories in ConfigMaps of {self.namespace}, and may "
            "not: grant get, create, update and delete of configmaps there (see "
            f"docs/gitops.rst): {error.message}",
        )

    def _ours(self, found: dict[str, Any]) -> dict[str, Any]:
        """:raises CallError: agentk did not write it."""
        if owner := owner_of(found):
            # The author of a manifest in Git could claim any object this way.
            name = found["metadata"]["name"]
            raise self._unreadable(
                found, f"{name} has {OWNER}: {owner}, as it was applied from Git"
            )
        return found

    async def _put(
        self, number: int, data: dict[str, str], facts: dict[str, str], count: int
    ) -> None:
        known = self._parts[number] if number < len(self._parts) else None
        if number and known is not None and (known.get("data") or {}) == data:
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
            # A growth or a move that was cut off left it.
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


def entry_of(data: Mapping[str, str], key: ObjectKey) -> InventoryEntry | None:
    """Look an object up in the ``data`` of one part; None: it is not there."""
    text, _ = _written(key, InventoryEntry())
    if text not in data:
        return None
    try:
        found, entry = _read(text, data[text])
    except ValueError:
        return None
    return entry if found == key else None


def _sealed(key: ObjectKey, entry: InventoryEntry, seal: str) -> InventoryEntry:
    """Sign `InventoryEntry.applied`."""
    if not entry.applied:
        return entry
    signature = _signature(key, entry.uid, entry.applied, seal)
    return attrs.evolve(entry, applied=f"{entry.applied}:{signature}")


def _opened(key: ObjectKey, entry: InventoryEntry, seal: str) -> InventoryEntry:
    """
    Return an entry whose ``applied`` agentk wrote; else it is not known.

    Others may write inventories, and could hide there that an object differs from Git.
    """
    applied, _, signature = entry.applied.rpartition(":")
    if applied and seal and signature.isascii():
        expected = _signature(key, entry.uid, applied, seal)
        if hmac.compare_digest(signature, expected):
            return attrs.evolve(entry, applied=applied)
    return attrs.evolve(entry, applied="")


def _signature(key: ObjectKey, uid: str, applied: str, seal: str) -> str:
    text = json.dumps([*key, uid, applied])
    return hmac.new(seal.encode(), text.encode(), "sha256").hexdigest()[:MAC]


def _size(data: Mapping[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in data.items())


def _written(key: ObjectKey, entry: InventoryEntry) -> tuple[str, str]:
    """Key and value in ``data``."""
    known: dict[str, Any] = {"uid": entry.uid} if entry.uid else {}
    if entry.held:
        known["held"] = entry.held
    if entry.applied:
        known["applied"] = entry.applied
    if entry.claimed:
        known["claimed"] = entry.claimed
    name = key.name.replace(":", "__")
    text = f"{key.namespace}_{name}_{key.group}_{key.kind}"
    if _DATA_KEY.fullmatch(text) is None or "_" in key.name:
        # As a name of RBAC can be, in which every character may stand.
        text = _ODD + sha256("\0".join(key).encode()).hexdigest()
        known["key"] = list(key)
    return text, json.dumps(known, separators=(",", ":")) if known else ""


def _read(text: str, value: str) -> tuple[ObjectKey, InventoryEntry]:
    """:raises ValueError: nobody but a person wrote that."""
    try:
        known = json.loads(value) if value else {}
    except (ValueError, RecursionError):
        known = None
    # The status that newer cli-utils keep there is of no use here.
    if not isinstance(known, dict) or not isinstance(known.get("uid", ""), str):
        raise ValueError(f"the value of {text!r} is not what agentk wrote")
    said = (str(known.get(name, "")) for name in ("held", "applied", "claimed"))
    entry = InventoryEntry(known.get("uid", ""), *said)
    if text.startswith(_ODD):
        parts = known.get("key")
        if isinstance(parts, list) and [type(one) for one in parts] == [str] * 4:
            return ObjectKey(*parts), entry
    else:
        namespace, _, rest = text.partition("_")
        rest, _, kind = rest.rpartition("_")
        name, separator, group = rest.rpartition("_")
        if separator and name and kind:
            return ObjectKey(group, kind, namespace, name.replace("__", ":")), entry
    raise ValueError(f"{text!r} names no object")
