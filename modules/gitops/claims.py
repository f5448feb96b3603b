"""
Objects that another agent of the cluster has in Git, as its inventory says.

Agents know nothing of each other.  An object that an agent is refused, because it is of
the inventory of another, stands in its own inventory as claimed, and has an annotation
that says so; a prune looks for both.  Many users may write ConfigMaps, and could keep
with one whatever leaves Git; who may annotate an object could take it out of its
inventory anyway:

    agent 1   has a commit without the object, and looks for claims to it; where agent 2
              follows the same source, it waits a while for agent 2 to have the commit
    agent 2   is refused the object, says there that it claims it, and then writes that
              and the commit into its inventory
    agent 1   takes its mark off the object, in place of deleting it; one that was
              claimed after agent 1 had looked at it stays until the next look
    agent 2   takes the object, which is of no inventory now, and still says that it is
              claimed

No mark on an inventory proves which agentk wrote it, because other users may write any
annotation, and a Lease that fits it.  So agent 1 believes every ConfigMap that seems to
be behind, and bounds the delay instead: each delete waits once, whatever commits come
meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping

import attrs

from modules.gitops.brakes import claimed_by
from modules.gitops.inventory import (
    COMMIT,
    LABEL,
    MAX_PARTS,
    PARTS,
    SOURCE,
    WRITER,
    entry_of,
)
from modules.gitops.manifests import ObjectKey
from modules.gitops.snapshot import followed_in
from tunnel.errors import CallError, Status
from tunnel.interfaces import (
    IKubernetesClient,
    KubernetesObject,
    KubernetesResource,
)
from tunnel.util.texts import clean

__all__ = ["OTHERS_SECONDS", "Claim", "Claims", "ClaimsOf", "no_claims"]

_CONFIG_MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)

#: ConfigMaps of one page, without and with their content, of up to a quarter of a
#: megabyte and a megabyte: written as JSON that may be six times as much.
PAGE, WHOLE_PAGE = 8, 2

#: ConfigMaps that are looked at.
MAX_SEEN = 4000

#: Annotations that are looked at.
_FACTS = (COMMIT, PARTS, SOURCE, WRITER)

#: Where the namespace stands among them; no annotation has that name.
_NAMESPACE = ""

#: Seconds for which the delete of an object waits for other agents to come to the
#: commit: kas tells all of them within seconds, and one that is away, or a ConfigMap
#: that only seems to be an inventory, must not hold deletes for ever.
OTHERS_SECONDS = 120.0

#: The value of a label.
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

#: Characters of the id of an inventory, as it is shown.
MAX_ID = 100


@attrs.frozen
class Claim:
    """
    What keeps an object from being deleted.

    :ivar is_made: another inventory claims it, and takes it; else one may yet.
    """

    reason: str
    is_made: bool


#: Given the objects as they are.
ClaimsOf = Callable[
    [Mapping[ObjectKey, KubernetesObject]], Awaitable[Mapping[ObjectKey, Claim]]
]


async def no_claims(
    objects: Mapping[ObjectKey, KubernetesObject],
) -> Mapping[ObjectKey, Claim]:
    """Say that no other agent has anything."""
    return {}


@attrs.frozen
class Claims:
    """
    Claims to the objects of one inventory.

    :param client: acts as agentk.
    :param inventory_id: of the project that prunes.
    :param mark: of this agentk as a writer of inventories: its projects ask each other,
        and what a project of before has left claims nothing.
    :param namespace: of this agentk's inventories: others may write a mark elsewhere.
    :param source: what the project follows, as its inventory has it.
    :param commit: the commit without the objects.
    :param waits: since when each delete has waited for others to come to the commit; it
        is kept from one look to the next.
    :param now: the time of the clock that *waits* has.
    """

    _client: IKubernetesClient
    _inventory_id: str
    _mark: str
    _namespace: str
    _source: str
    _commit: str
    _waits: dict[ObjectKey, float]
    _now: float

    async def of(
        self, objects: Mapping[ObjectKey, KubernetesObject]
    ) -> Mapping[ObjectKey, Claim]:
        """
        Look for claims to *objects*, which are all whose deletes are due.

        Where agentk may not list ConfigMaps it finds none.

        :raises CallError: the cluster cannot be asked now.
        """
        if not objects:
            self._waits.clear()
            return {}
        facts: list[tuple[str, Mapping[str, str]]] = []
        try:
            facts = await self._facts()
        except CallError as error:
            if error.status is not Status.PERMISSION_DENIED:
                raise
        # The first part of each has the mark.
        own = {
            one
            for one, said in facts
            if (said.get(WRITER), said[_NAMESPACE]) == (self._mark, self._namespace)
        }
        own.add(self._inventory_id)
        others = {inventory for inventory, _ in facts} - own
        found: dict[ObjectKey, Claim] = {}
        for inventory in others.intersection(map(claimed_by, objects.values())):
            keys = [key for key, one in objects.items() if claimed_by(one) == inventory]
            found |= await self._claimed(inventory, keys)
        behind = ""
        for inventory, said in facts:
            if inventory in others and self._is_behind(said):
                behind = clean(inventory, MAX_ID)
                break
        if behind:
            why = (
                f"the inventory {behind} of another agent, which follows the same, is "
                "of another commit, and may come to claim it"
            )
            for key in self._waiting(objects):
                found.setdefault(key, Claim(why, False))
        else:
            self._waits.clear()
        return found

    def _waiting(self, keys: Collection[ObjectKey]) -> Collection[ObjectKey]:
        """Return those of *keys* that have not waited for long enough."""
        for key in [one for one in self._waits if one not in keys]:
            del self._waits[key]
        begun = {key: self._waits.setdefault(key, self._now) for key in keys}
        return [key for key, at in begun.items() if self._now - at < OTHERS_SECONDS]

    async def _facts(self) -> list[tuple[str, Mapping[str, str]]]:
        """Id, annotations and namespace of each part of all inventories."""
        found: list[tuple[str, Mapping[str, str]]] = []
        # Anyone may give large ConfigMaps the label, and many of them.
        pages = self._client.list(
            _CONFIG_MAPS, label_selector=LABEL, limit=PAGE, metadata_only=True
        )
        async for page in pages:
            for one in page:
                said = one["metadata"].get("annotations") or {}
                facts = {name: said[name] for name in _FACTS if name in said}
                facts[_NAMESPACE] = one["metadata"]["namespace"]
                found.append((one["metadata"]["labels"][LABEL], facts))
            if len(found) >= MAX_SEEN:
                break
        return found

    async def may_follow(self, inventory: str) -> bool:
        """
        Tell whether another agent's inventory follows the same, and may come to it.

        Where agentk may not list ConfigMaps it does not.

        :raises CallError: the cluster cannot be asked now.
        """
        if _LABEL_VALUE.fullmatch(inventory) is None:
            # Any text may be in the mark of an object.
            return False
        seen = 0
        pages = self._client.list(
            _CONFIG_MAPS,
            label_selector=f"{LABEL}={inventory}",
            limit=PAGE,
            metadata_only=True,
        )
        try:
            async for page in pages:
                for one in page:
                    said = one["metadata"].get("annotations") or {}
                    theirs = said.get(SOURCE, "")
                    if PARTS in said and _may_be_same(theirs, self._source):
                        return True
                seen += len(page)
                if seen > 2 * MAX_PARTS:
                    break
        except CallError as error:
            if error.status is not Status.PERMISSION_DENIED:
                raise
        return False

    async def _claimed(
        self, inventory: str, keys: Collection[ObjectKey]
    ) -> Mapping[ObjectKey, Claim]:
        """Claims of one inventory to *keys*, which say that it has some."""
        other, found, seen = clean(inventory, MAX_ID), dict[ObjectKey, Claim](), 0
        pages = self._client.list(
            _CONFIG_MAPS, label_selector=f"{LABEL}={inventory}", limit=WHOLE_PAGE
        )
        async for page in pages:
            seen += len(page)
            if seen > 2 * MAX_PARTS:
                why = f"too many ConfigMaps say that they are the inventory {other}"
                return dict.fromkeys(keys, Claim(why, False))
            for part in page:
                for key in keys:
                    entry = entry_of(part.get("data") or {}, key)
                    if entry is not None and entry.claimed == self._inventory_id:
                        why = f"the inventory {other} of another agent claims it"
                        found[key] = Claim(why, True)
        return found

    def _is_behind(self, annotations: Mapping[str, str]) -> bool:
        """Whether an inventory may come to have our commit."""
        return (
            PARTS in annotations
            and bool(self._source)
            and _may_be_same(annotations.get(SOURCE, ""), self._source)
            and annotations.get(COMMIT) != self._commit
        )


def _may_be_same(theirs: str, ours: str) -> bool:
    """Whether two inventories may follow the same ref of one repository."""
    if not theirs:
        return False
    (one, name), (two, other) = map(followed_in, (theirs, ours))
    if one.repository != two.repository and (name != other or not one.may_be_in(two)):
        return False
    return one.may_be_ref(two)
