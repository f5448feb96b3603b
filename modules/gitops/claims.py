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
meanwhile.  An inventory that stays at its commit for that long, because its project is
suspended, pinned or renamed, delays no later delete until it has another commit.

Other users may also write so many ConfigMaps that agent 1 cannot look at all.  So it
reads each inventory that an object names, and waits for the rest as if it were behind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping

import attrs

from modules.gitops.brakes import CLAIMED_BY, claimed_by
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

__all__ = ["OTHERS_SECONDS", "Claim", "Claims", "ClaimsOf", "Waits", "no_claims"]

_CONFIG_MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)

#: ConfigMaps of one page, without and with their content, of up to a quarter of a
#: megabyte and a megabyte: written as JSON that may be six times as much.
PAGE, WHOLE_PAGE = 8, 2

#: ConfigMaps that are looked at.
MAX_SEEN = 4000

#: Annotations that are looked at, and characters of each: others may write any.
_FACTS = (COMMIT, PARTS, SOURCE, WRITER)
MAX_FACT = 4096

#: Where the namespace stands among them; no annotation has that name.
_NAMESPACE = ""

#: Name of the inventories beyond `MAX_SEEN`; a label cannot be like this.
_UNSEEN = "?"

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
    :ivar seconds: for how long it keeps it at most.
    """

    reason: str
    is_made: bool
    seconds: float = math.inf


@attrs.define
class _Behind:
    """
    An inventory that is not at our commit.

    :ivar commit: the commit that it is at.
    :ivar since: when it was first seen there.
    :ivar ended: when it had stayed there for `OTHERS_SECONDS`.
    """

    commit: str
    since: float
    ended: float = math.inf


@attrs.define
class Waits:
    """
    How long deletes have waited for other agents, from one look to the next.

    :ivar begun: when each delete began to wait.
    :ivar behind: the inventories that have been behind since the last look.
    """

    begun: dict[ObjectKey, float] = attrs.field(factory=dict)
    behind: dict[str, _Behind] = attrs.field(factory=dict)

    def copy(self) -> Waits:
        """Return waits that change by themselves."""
        behind = {name: attrs.evolve(one) for name, one in self.behind.items()}
        return Waits(dict(self.begun), behind)

    def end(self) -> None:
        """Note that no delete is due."""
        self.begun.clear()
        # The others have not been seen for long enough to say how slow they are.
        self.behind = {
            name: one for name, one in self.behind.items() if one.ended < math.inf
        }

    def look(
        self, keys: Collection[ObjectKey], behind: Mapping[str, str], now: float
    ) -> tuple[str, Mapping[ObjectKey, float]]:
        """
        Note which inventories are behind now, and at which commits.

        :param keys: all objects whose deletes are due.
        :return: the last inventory that became known, and those of *keys* that wait,
            with the seconds that are left to them.
        """
        before, self.behind = self.behind, {}
        for name, commit in behind.items():
            one = before.get(name)
            if one is None or one.commit != commit:
                one = _Behind(commit, now)
            elif one.ended == math.inf and now - one.since >= OTHERS_SECONDS:
                one.ended = now
            self.behind[name] = one
        last = max(self.behind, key=lambda name: self.behind[name].ended, default="")
        # Deletes that began to wait before an inventory proved slow wait all the same.
        until = self.behind[last].ended if last else -math.inf
        begun = {key: self.begun.get(key, now) for key in keys}
        self.begun = {key: at for key, at in begun.items() if at < until}
        ends = {key: at + OTHERS_SECONDS - now for key, at in self.begun.items()}
        return last, {key: left for key, left in ends.items() if left > 0}


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
    :param waits: of the deletes, for others to come to the commit.
    :param now: the time of the clock that *waits* has.
    """

    _client: IKubernetesClient
    _inventory_id: str
    _mark: str
    _namespace: str
    _source: str
    _commit: str
    _waits: Waits
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
            self._waits.end()
            return {}
        facts: list[tuple[str, Mapping[str, str]]] = []
        is_all = True
        try:
            facts, is_all = await self._facts()
        except CallError as error:
            if error.status is not Status.PERMISSION_DENIED:
                raise
        # The first part of each has the mark.
        own = {one for one, said in facts if self._is_own(said)}
        own.add(self._inventory_id)
        found: dict[ObjectKey, Claim] = {}
        named: dict[str, list[ObjectKey]] = {}
        for key, one in objects.items():
            named.setdefault(claimed_by(one), []).append(key)
        for inventory, keys in named.items():
            # Others may hide it among many that were seen.
            if inventory not in own and _LABEL_VALUE.fullmatch(inventory) is not None:
                found |= await self._claimed(inventory, keys)
        behind: dict[str, str] = {}
        writers: dict[str, str] = {}
        for inventory, said in facts:
            if inventory not in own and self._is_behind(said):
                behind[inventory] = said.get(COMMIT, "")
                writers[inventory] = said.get(WRITER, "")
        if not is_all:
            behind[_UNSEEN] = ""
        last, waiting = self._waits.look(objects, behind, self._now)
        if last == _UNSEEN:
            why = (
                f"more than {MAX_SEEN} ConfigMaps say that they are inventories, and "
                "another agent may come to claim it: deletes wait up to "
                f"{OTHERS_SECONDS / 60:g} minutes"
            )
        else:
            agent = clean(writers.get(last, "").partition("@")[0], MAX_ID)
            who = f"agent {agent}" if agent else "another agent"
            why = (
                f"waits up to {OTHERS_SECONDS / 60:g} minutes for {who}, which follows "
                f"the same and may come to claim it (the inventory "
                f"{clean(last, MAX_ID)} of another agent is of another commit)"
            )
        for key, left in waiting.items():
            found.setdefault(key, Claim(why, False, left))
        return found

    def _is_own(self, said: Mapping[str, str]) -> bool:
        """Whether a ConfigMap has the mark of this agentk, where only it may write."""
        written = said.get(WRITER), said[_NAMESPACE]
        return written == (self._mark, self._namespace)

    async def _facts(self) -> tuple[list[tuple[str, Mapping[str, str]]], bool]:
        """
        Id, annotations and namespace of each part of the inventories.

        The second value tells whether these are all.
        """
        found: list[tuple[str, Mapping[str, str]]] = []
        # Anyone may give large ConfigMaps the label, and many of them.
        pages = self._client.list(
            _CONFIG_MAPS, label_selector=LABEL, limit=PAGE, metadata_only=True
        )
        async for page in pages:
            if len(found) >= MAX_SEEN:
                return found, False
            found.extend((one["metadata"]["labels"][LABEL], _said(one)) for one in page)
        return found, True

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
        """
        Claims of one inventory to *keys*, which say that it has some.

        An object that nothing was found out about stays.
        """
        other, found, seen = clean(inventory, MAX_ID), dict[ObjectKey, Claim](), 0
        pages = self._client.list(
            _CONFIG_MAPS, label_selector=f"{LABEL}={inventory}", limit=WHOLE_PAGE
        )
        try:
            async for page in pages:
                seen += len(page)
                if seen > 2 * MAX_PARTS:
                    why = f"too many ConfigMaps say that they are the inventory {other}"
                    return dict.fromkeys(keys, Claim(why, False))
                for part in page:
                    if self._is_own(_said(part)):
                        return {}
                    for key in keys:
                        entry = entry_of(part.get("data") or {}, key)
                        if entry is not None and entry.claimed == self._inventory_id:
                            why = f"the inventory {other} of another agent claims it"
                            found[key] = Claim(why, True)
        except CallError as error:
            if error.status is not Status.PERMISSION_DENIED:
                raise
            why = (
                f"it says that the inventory {other} claims it, and agentk may not "
                "list ConfigMaps to see that: allow agentk to list them, or remove "
                f"the annotation {CLAIMED_BY}"
            )
            return dict.fromkeys(keys, Claim(why, False))
        return found

    def _is_behind(self, annotations: Mapping[str, str]) -> bool:
        """Whether an inventory may come to have our commit."""
        return (
            PARTS in annotations
            and bool(self._source)
            and _may_be_same(annotations.get(SOURCE, ""), self._source)
            and annotations.get(COMMIT) != self._commit
        )


def _said(part: KubernetesObject) -> Mapping[str, str]:
    """Annotations of a ConfigMap, as far as they matter, and its namespace."""
    said = part["metadata"].get("annotations") or {}
    facts = {name: said[name][:MAX_FACT] for name in _FACTS if name in said}
    facts[_NAMESPACE] = part["metadata"]["namespace"]
    return facts


def _may_be_same(theirs: str, ours: str) -> bool:
    """Whether two inventories may follow the same ref of one repository."""
    if not theirs:
        return False
    (one, name), (two, other) = map(followed_in, (theirs, ours))
    if one.repository != two.repository and (name != other or not one.may_be_in(two)):
        return False
    return one.may_be_ref(two)
