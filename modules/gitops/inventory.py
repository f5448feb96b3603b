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

import json
import re
import zlib
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import attrs

from modules.gitops.brakes import OWNER, owner_of
from modules.gitops.manifests import ObjectKey
from modules.gitops.writer import InventoryWriter
from tunnel.errors import CallError, Status
from tunnel.interfaces import IKubernetesClient, KubernetesResource
from tunnel.util.texts import clean

__all__ = [
    "APPROVED",
    "LABEL",
    "PINNED",
    "SUSPENDED",
    "AppliedCommit",
    "Inventory",
    "InventoryEntry",
    "InventoryStore",
    "Orders",
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

#: What a person writes there: which deletes need not wait.
APPROVED = "txkas/approved"

#: Ours again, and set by people: nothing is changed; which commit the source stays at.
SUSPENDED, PINNED = "txkas/suspended", "txkas/pinned"

#: Commits that were applied, the last one last.
HISTORY = "txkas/history"

#: Characters of who wrote it, as they are shown.
MAX_MARK = 300

#: Seconds since 1970 before which a commit was applied: years have four digits.
MAX_TIME = 253_402_300_800

#: So many are remembered.
MAX_HISTORY = 20

#: What stays when an inventory is written.
_KEPT = (SUSPENDED, PINNED, HISTORY)

#: What a key of ``data`` can be.
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")

#: What agentk counts to; people may have written anything there.
_COUNT = re.compile(r"[0-9]{1,18}")

#: How keys begin that hold a name which no key can.
_ODD = "odd."


@attrs.frozen
class InventoryEntry:
    """
    What is known of one object.

    :ivar uid: of the live object that was applied; empty: it was about to be.
    :ivar held: why a limit of the source keeps it, until a person says otherwise.
    :ivar applied: what it was applied with, as `Settled` writes it; empty: not known.
    :ivar released: the commit with which a person has let it go all the same.
    """

    uid: str = ""
    held: str = ""
    applied: str = ""
    released: str = ""


@attrs.frozen(eq=False)
class Inventory:
    """
    What a source has in the cluster, or is about to have.

    :ivar commit: the last one that was written down.
    :ivar approved: the deletes that a person lets go, as `Plan.release` names them,
        until it is noted at each of them.
    :ivar default_namespace: what it was when objects were last applied and pruned;
        empty: there is no inventory yet.
    :ivar of_other: which agentk wrote it last, where that is of another agent than this
        one, or led with another Lease; empty: it is ours, or is not known.
    """

    entries: Mapping[ObjectKey, InventoryEntry] = attrs.field(factory=dict)
    commit: str = ""
    approved: str = ""
    default_namespace: str = ""
    of_other: str = ""


@attrs.frozen
class AppliedCommit:
    """
    A commit that was applied.

    :ivar at: when, in seconds since 1970.
    :ivar summary: what became of its objects, ``3 created, 1 pruned``.
    """

    commit: str
    at: float
    summary: str


@attrs.frozen
class Orders:
    """
    What people have said of a source, and what has been done with it.

    :ivar approved: see `Inventory`.
    :ivar suspended: nothing may be changed.
    :ivar pinned: the commit that it stays at; empty: that which it follows.
    :ivar history: the last commit last.
    """

    approved: str = ""
    suspended: bool = False
    pinned: str = ""
    history: tuple[AppliedCommit, ...] = ()

    @property
    def bound(self) -> tuple[bool, str]:
        """What binds whoever works on the source."""
        return self.suspended, self.pinned


class InventoryStore:
    """
    One inventory.

    :param inventory_id: what cli-utils calls it: ``<agent id>-<project id>``.
    :param namespace: where its ConfigMaps come, unless there are some elsewhere.
    :param writer: this agentk; None: it is the only one.
    :param former: from where alone they are moved to *namespace*; None: they are looked
        for in every Namespace, and stay there.
    :ivar namespace: where they are.
    """

    def __init__(
        self,
        client: IKubernetesClient,
        inventory_id: str,
        namespace: str,
        former: str | None = None,
        writer: InventoryWriter | None = None,
    ) -> None:
        self._client = client
        self._writer = writer
        self._id = inventory_id
        self.namespace = namespace
        self._former = former
        #: Parts as they were read or written last, with their versions.
        self._parts: list[dict[str, Any]] = []
        #: What people had said when it was asked last.
        self._orders: Orders | None = None

    async def read(self) -> Inventory:
        """
        What is written down now.

        :raises CallError: FAILED_PRECONDITION, it cannot be read, or an agentk that
            leads with another Lease writes it, and nothing may be changed; ABORTED,
            people have said otherwise since `orders` was asked; as `IKubernetesClient`.
        """
        first = await self._first()
        if first is None:
            self._parts = []
            return Inventory()
        annotations = first["metadata"].get("annotations") or {}
        said, known = _orders(annotations), self._orders
        if known is not None and known.bound != said.bound:
            raise CallError(Status.ABORTED, "people have said otherwise meanwhile")
        of_other = await self._of_other(annotations.get(WRITER, ""))
        parts = await self._all(first)
        entries: dict[ObjectKey, InventoryEntry] = {}
        for part in parts:
            for key, value in (part.get("data") or {}).items():
                try:
                    entries.update([_read(key, value)])
                except ValueError as error:
                    raise self._unreadable(str(error)) from None
        self._parts = parts
        return Inventory(
            entries,
            annotations.get(COMMIT, ""),
            annotations.get(APPROVED, ""),
            annotations.get(DEFAULT, self.namespace),
            of_other,
        )

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

    async def orders(self) -> Orders:
        """
        What people have said by now.

        :raises CallError: as `IKubernetesClient`.
        """
        first = await self._first()
        if first is None:
            return Orders()
        self._orders = _orders(first["metadata"].get("annotations") or {})
        return self._orders

    async def check(self) -> None:
        """
        Ask whether it is as it was read or written last.

        :raises CallError: ABORTED, another agentk or a person wrote since then: read it
            again, and change nothing before.
        """
        first = await self._get(0)
        versions = [
            one["metadata"]["resourceVersion"]
            for one in (first, *self._parts[:1])
            if one
        ]
        if len(versions) == 1 or len(set(versions)) > 1:
            raise CallError(Status.ABORTED, "the inventory has changed meanwhile")

    async def order(self, changes: Mapping[str, str | None]) -> None:
        """
        Write down what a person says; after `orders` or `read`.

        :param changes: of annotations; None takes one away.
        :raises CallError: NOT_FOUND, there is no inventory yet.
        """
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{self._name(0)}"
        change = {"metadata": {"annotations": changes}}
        kind = "application/merge-patch+json"
        await self._client.json("PATCH", path, change, content_type=kind)

    async def remember(
        self, history: tuple[AppliedCommit, ...], last: AppliedCommit
    ) -> None:
        """Write down that a commit was applied."""
        kept = [*history, last][-MAX_HISTORY:]
        text = json.dumps([attrs.astuple(one) for one in kept], separators=(",", ":"))
        await self.order({HISTORY: text})

    async def write(self, inventory: Inventory) -> None:
        """
        Replace what was read or written last.

        :raises CallError: ABORTED, another agentk wrote since then: read it again, and
            change nothing before.  RESOURCE_EXHAUSTED, it is too large.
        """
        facts = {COMMIT: inventory.commit, DEFAULT: inventory.default_namespace}
        if self._writer is not None and self._writer.lease:
            facts[WRITER] = self._writer.mark
        if inventory.approved:
            facts[APPROVED] = inventory.approved
        count, datas = self._split(inventory.entries)
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

    async def _first(self) -> dict[str, Any] | None:
        """Part 0, which is here afterwards."""
        first = await self._get(0)
        if self._former is None:
            if first is None:
                first = await self._elsewhere()
            if first is not None:
                self.namespace = first["metadata"]["namespace"]
        elif self._former != self.namespace:
            first = await self._moved(self._former, first)
            # What comes there from now on is nobody's order.
            self._former = self.namespace
        return first

    async def _moved(
        self, former: str, first: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """
        Part 0, once nothing is left in the Namespace *former*.

        A move that ended half way begins again: what is there counts until part 0 is
        here, and is removed afterwards.
        """
        old = await self._found(0, former)
        if old is None:
            return first
        if first is None:
            parts = await self._all(self._ours(old))
            for number, part in reversed(list(enumerate(parts))):
                first = await self._copied(number, part)
        number = 0
        while old is not None and number < MAX_PARTS:
            await self._client.delete(
                _CONFIG_MAPS,
                self._name(number),
                former,
                uid=old["metadata"]["uid"],
                resource_version=old["metadata"]["resourceVersion"],
            )
            number += 1
            old = await self._found(number, former)
        return first

    async def _copied(self, number: int, part: dict[str, Any]) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "name": self._name(number),
            "namespace": self.namespace,
            "labels": {LABEL: self._id},
            "annotations": part["metadata"].get("annotations") or {},
        }
        copy = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": part.get("data") or {},
        }
        # One that a move left which was not finished.
        there = await self._get(number) if number else None
        return await self._stored(copy, there)

    async def _stored(
        self, object_: dict[str, Any], known: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Write one ConfigMap, in place of the *known* version alone."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        metadata = object_["metadata"]
        written: dict[str, Any]
        if known is None:
            written = await self._client.json("POST", path, object_)
        else:
            metadata["resourceVersion"] = known["metadata"]["resourceVersion"]
            path = f"{path}/{metadata['name']}"
            written = await self._client.json("PUT", path, object_)
        return written

    async def _all(self, first: dict[str, Any]) -> list[dict[str, Any]]:
        """All parts, where the first one is."""
        metadata = first["metadata"]
        count = (metadata.get("annotations") or {}).get(PARTS, "1")
        if count not in {str(2**power) for power in range(MAX_PARTS.bit_length())}:
            raise self._unreadable(f"{PARTS} cannot be {count[:40]!r}")
        parts = [first]
        for number in range(1, int(count)):
            part = await self._get(number, metadata["namespace"])
            if part is None:
                raise self._unreadable(f"part {number} is gone")
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
            raise
        return found

    def _ours(self, found: dict[str, Any]) -> dict[str, Any]:
        """:raises CallError: agentk did not write it."""
        if owner := owner_of(found):
            # Whoever may write to Git could say there what a person has to.
            name = found["metadata"]["name"]
            raise self._unreadable(
                f"{name} has {OWNER}: {owner}, as it was applied from Git"
            )
        return found

    async def _elsewhere(self) -> dict[str, Any] | None:
        """
        Part 0 in another namespace, as ``default_namespace`` was once.

        :raises CallError: FAILED_PRECONDITION, there are several.
        """
        found: list[dict[str, Any]] = []
        try:
            pages = self._client.list(
                _CONFIG_MAPS, label_selector=f"{LABEL}={self._id}"
            )
            async for page in pages:
                found += [
                    one for one in page if one["metadata"]["name"] == self._name(0)
                ]
        except CallError as error:
            # agentk may have rights in some namespaces only.
            if error.status is not Status.PERMISSION_DENIED:
                raise
        if len(found) > 1:
            names = sorted(one["metadata"]["namespace"] for one in found)
            raise self._unreadable(
                f"it is in {', '.join(names[:5])}; remove all but one"
            )
        return found[0] if found else None

    async def _put(
        self, number: int, data: dict[str, str], facts: dict[str, str], count: int
    ) -> None:
        known = self._parts[number] if number < len(self._parts) else None
        if number and known is not None and (known.get("data") or {}) == data:
            return
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
            for key in _KEPT:
                if key in before:
                    metadata["annotations"][key] = before[key]
        elif known is None:
            # One that a growth left which was not finished.
            known = await self._get(number)
        object_ = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": data,
        }
        self._parts[number : number + 1] = [await self._stored(object_, known)]

    def _unreadable(self, why: str) -> CallError:
        return CallError(
            Status.FAILED_PRECONDITION,
            f"the inventory {self.namespace}/{self._name(0)} cannot be read: {why}",
        )


def _orders(annotations: Mapping[str, str]) -> Orders:
    return Orders(
        annotations.get(APPROVED, ""),
        annotations.get(SUSPENDED, "") not in ("", "false"),
        annotations.get(PINNED, ""),
        _history(annotations.get(HISTORY, "")),
    )


def _history(text: str) -> tuple[AppliedCommit, ...]:
    """What people have changed so that it cannot be read is none."""
    try:
        found = tuple(
            AppliedCommit(str(commit), float(at), str(summary))
            for commit, at, summary in json.loads(text or "[]")
        )
    except (ValueError, TypeError, OverflowError, RecursionError):
        return ()
    if not all(0 <= one.at < MAX_TIME for one in found):
        return ()
    return found[-MAX_HISTORY:]


def _size(data: Mapping[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in data.items())


def _written(key: ObjectKey, entry: InventoryEntry) -> tuple[str, str]:
    """Key and value in ``data``."""
    known: dict[str, Any] = {"uid": entry.uid} if entry.uid else {}
    if entry.held:
        known["held"] = entry.held
    if entry.applied:
        known["applied"] = entry.applied
    if entry.released:
        known["released"] = entry.released
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
    said = (str(known.get(name, "")) for name in ("held", "applied", "released"))
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
