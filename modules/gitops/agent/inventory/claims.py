"""
Claims: objects that other agents of the cluster have in Git, per their inventories.

Agents do not communicate with each other. If an agent may not apply an object because
another inventory owns it, the agent records the object as claimed in its own inventory,
and in an annotation of the object; a prune checks both. A claim needs the annotation
because many users may write ConfigMaps, and could otherwise keep every object that is
removed from Git.  A user who may annotate an object could take it out of its inventory
anyway:

    agent 1   has a commit without the object, and looks for claims to it; if agent 2
              follows the same source, agent 1 waits a while for agent 2 to reach the
              commit
    agent 2   may not apply the object, annotates it as claimed, and then writes the
              claim and the commit to its inventory
    agent 1   removes its annotations from the object instead of deleting it; an object
              that was claimed after the check of agent 1 stays until the next check; a
              claim of another commit counts only after the wait
    agent 2   takes the object, which has no inventory now and is still annotated as
              claimed; if the object was removed from Git again, agent 2 deletes it

If agent 2 may take the object from agent 1 (``adopt_all``), it enters the object in its
inventory, takes it, and only then writes the commit, because the object may be applied
much later. The object keeps a claim of agent 1: if agent 1 still has it in Git, agent 1
gets it back when it is removed from Git at agent 2.

No annotation of an inventory proves which agentk wrote it, because other users may
write any annotation, and a Lease to match. So agent 1 believes every ConfigMap that
seems to be behind, and limits the delay instead: each delete waits once, even if
commits arrive in the meantime. If an inventory stays at its commit for that long, it
delays no further delete of the same commit of agent 1. A newer commit begins another
wait, because agent 2 may be able to apply the newer commit, which may move an object to
agent 2.

An inventory at the commit of agent 1 does not show that its agent has read the newest
configuration. If the settings of agent 1 that select its objects have changed, a glob
may have moved to agent 2. So all inventories of the source count as behind then, until
a pass of agent 1 in which no delete waits: only then, agent 1 writes a digest of its
settings to its inventory.

Other users may also create too many ConfigMaps for agent 1 to read. So agent 1 reads
each inventory that an object names, and waits for the others as if they were behind.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping

import attrs

from modules.gitops.agent.inventory.inventory import (
    COMMIT,
    LABEL,
    MAX_PARTS,
    PARTS,
    SELECTION,
    SOURCE,
    WRITER,
    entry_of,
    part_name,
)
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import CLAIMED_BY, claimed_by
from modules.gitops.agent.source.snapshot import followed_in
from tunnel.api import (
    IKubernetesClient,
    KubernetesObject,
    KubernetesResource,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.texts import clean

__all__ = ["OTHERS_SECONDS", "Claim", "Claims", "ClaimsOf", "Waits", "no_claims"]

_CONFIG_MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)

#: Number of ConfigMaps in one page: if only metadata is read, which takes up to a
#: quarter of a megabyte each, and if the content is read, which takes up to a megabyte
#: each.  JSON may take six times as much.
PAGE, WHOLE_PAGE = 8, 2

#: Maximum number of ConfigMaps of inventories at the same commit that are read for
#: claims without annotations, at most 100 MB per pass.  Other users may create more of
#: them.
MAX_WANTING = 100

#: Maximum number of ConfigMaps that are read.
MAX_SEEN = 4000

#: Maximum number of Namespaces that are searched for an inventory: only one contains
#: it, and others contain ConfigMaps of users.
MAX_CLAIMANTS = 8

#: Maximum number of inventories with this agentk's mark whose Secrets are read in one
#: pass: an agent has fewer former projects, but other users may write the mark.  More
#: inventories count as those of other agents.
MAX_MARKED = 100

#: Annotations that are read, and maximum characters of each annotation, because other
#: users may write any text.
_FACTS = (COMMIT, PARTS, SELECTION, SOURCE, WRITER)
MAX_FACT = 4096

#: Key of the namespace among the annotations; no annotation has this name.
_NAMESPACE = ""

#: Name for the inventories beyond `MAX_SEEN`; labels cannot have this value.
_UNSEEN = "?"

#: Seconds that the delete of an object waits for other agents to reach the commit: kas
#: notifies all of them within seconds.  An absent agent, or a ConfigMap that only seems
#: to be an inventory, must not hold deletes forever.
OTHERS_SECONDS = 120.0

#: Pattern for a valid value of a label.
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

#: Maximum characters of the id of an inventory in messages.
MAX_ID = 100


@attrs.frozen
class Claim:
    """
    Reason not to delete an object.

    :ivar is_made: true if another inventory claims the object and will take it; false
        if another inventory may still claim the object.
    :ivar seconds: the maximum number of seconds that the object is kept.
    """

    reason: str
    is_made: bool
    seconds: float = math.inf


@attrs.define
class _Behind:
    """
    Inventory that is not at this inventory's commit.

    :ivar commit: the commit of this other inventory.
    :ivar since: when the other inventory was first seen at that commit.
    :ivar ended: when the other inventory had stayed at that commit for `OTHERS_SECONDS`
        while this inventory's own commit did not change; infinite before that.
    """

    commit: str
    since: float
    ended: float = math.inf


@attrs.define
class Waits:
    """
    Record of the deletes that wait for other agents, from one check to the next.

    :ivar begun: when each delete began to wait.
    :ivar behind: the inventories that were behind at the last check.
    :ivar own: this inventory's commit at the last check.
    """

    begun: dict[ObjectKey, float] = attrs.field(factory=dict)
    behind: dict[str, _Behind] = attrs.field(factory=dict)
    own: str = ""

    def copy(self) -> Waits:
        """Return an independent copy."""
        behind = {name: attrs.evolve(one) for name, one in self.behind.items()}
        return Waits(dict(self.begun), behind, self.own)

    def end(self) -> None:
        """Note that no delete is due."""
        self.begun.clear()
        # Forget these inventories, because they were observed for too short a time to
        # show how slow their agents are.
        self.behind = {
            name: one for name, one in self.behind.items() if one.ended < math.inf
        }

    def look(
        self,
        keys: Collection[ObjectKey],
        behind: Mapping[str, str],
        own: str,
        now: float,
    ) -> tuple[str, Mapping[ObjectKey, float]]:
        """
        Record the inventories that have not reached this inventory's commit.

        :param keys: all objects whose deletes are due.
        :param behind: the commits of these inventories, by id.
        :param own: this inventory's commit; another one than before starts new waits.
        :returns: the inventory for which the deletes wait longest, and the objects
            whose deletes wait, each with the remaining seconds.
        """
        if own != self.own:
            # Forget the inventories: an inventory that was slow to reach another commit
            # may reach this one.
            self.behind.clear()
            self.own = own
        before, self.behind = self.behind, {}
        for name, commit in behind.items():
            one = before.get(name)
            if one is None or one.commit != commit:
                one = _Behind(commit, now)
            elif one.ended == math.inf and now - one.since >= OTHERS_SECONDS:
                one.ended = now
            self.behind[name] = one
        last = max(self.behind, key=lambda name: self.behind[name].ended, default="")
        # Deletes that began to wait before the inventory proved to be slow continue to
        # wait.
        until = self.behind[last].ended if last else -math.inf
        begun = {key: self.begun.get(key, now) for key in keys}
        self.begun = {key: at for key, at in begun.items() if at < until}
        ends = {key: at + OTHERS_SECONDS - now for key, at in self.begun.items()}
        return last, {key: left for key, left in ends.items() if left > 0}


@attrs.define
class _Facts:
    """
    Facts about all inventories in the cluster; texts that other users may make long are
    left out.

    :ivar marked: ids on ConfigMaps with the mark of this agentk.
    :ivar behind: inventories that are not at this commit but may reach it, each with
        its commit and its writer.
    :ivar at_commit: inventories of the same source that are at this commit, each with
        its writer.
    :ivar same: inventories in *behind* that certainly follow the same repository.
    :ivar is_reselected: whether the settings that select the objects of this inventory
        have changed.
    :ivar is_all: whether all inventories were read.
    :ivar may_list: whether agentk may list the ConfigMaps of inventories.
    """

    marked: set[str] = attrs.field(factory=set)
    behind: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    at_commit: dict[str, str] = attrs.field(factory=dict)
    same: set[str] = attrs.field(factory=set)
    is_reselected: bool = False
    is_all: bool = True
    may_list: bool = True


#: Function that returns the claims to objects, given their live state.
ClaimsOf = Callable[
    [Mapping[ObjectKey, KubernetesObject]], Awaitable[Mapping[ObjectKey, Claim]]
]


async def _wrote_none(inventory: str) -> bool:
    return False


async def no_claims(
    objects: Mapping[ObjectKey, KubernetesObject],
) -> Mapping[ObjectKey, Claim]:
    """Return no claims, for a cluster without other agents."""
    return {}


@attrs.frozen
class Claims:
    """
    Search for claims of other agents to the objects of one inventory.

    :param client: acts as agentk.
    :param inventory_id: the inventory of the project that prunes.
    :param mark: this agentk's mark as a writer of inventories.  Inventories with this
        mark are ignored: this agentk's projects coordinate directly, and leftovers of
        its former projects do not claim any object.
    :param namespace: the Namespace of this agentk's inventories: a mark in another
        Namespace is ignored, because other users may have written it.
    :param source: the source of the project, as recorded in its inventory.
    :param commit: the commit without the objects.
    :param waits: the waits of deletes until other agents reach the commit.
    :param now: the current time, by the clock of *waits*.
    :param selection: see `Inventory.selection`.
    :param siblings: the inventories of the other projects of this agentk.
    :param wrote: returns whether this agentk wrote the inventory with an id, according
        to its Secrets: other users may write its mark into any ConfigMap, and could
        otherwise hide the claims of another agent.
    :param selected: returns the selection of the last pass according to the Secret with
        the orders: other users may write the annotation, too, and could otherwise end
        the wait for other agents.
    """

    _client: IKubernetesClient
    _inventory_id: str
    _mark: str
    _namespace: str
    _source: str
    _commit: str
    _waits: Waits
    _now: float
    _selection: str = ""
    _siblings: Collection[str] = ()
    _wrote: Callable[[str], Awaitable[bool]] = _wrote_none
    _selected: Callable[[], Awaitable[str]] | None = None

    async def of(
        self, objects: Mapping[ObjectKey, KubernetesObject]
    ) -> Mapping[ObjectKey, Claim]:
        """
        Return the claims to *objects*, which must be all objects whose deletes are due.

        If agentk may not list ConfigMaps, every delete waits as for an agent that is
        behind: the permission may only be missing for a moment.

        :raises CallError: if the API server is unavailable.
        """
        if not objects:
            self._waits.end()
            return {}
        facts = _Facts(is_reselected=bool(self._selection))
        try:
            await self._read(facts)
        except CallError as error:
            if error.status is not Status.PERMISSION_DENIED:
                raise
            facts.is_all, facts.may_list = False, False
        if self._selected is not None and not facts.is_reselected:
            facts.is_reselected = await self._selected() != self._selection
        found: dict[ObjectKey, Claim] = {}
        early: set[ObjectKey] = set()
        named: dict[str, list[ObjectKey]] = {}
        for key, one in objects.items():
            named.setdefault(claimed_by(one), []).append(key)
        others = {*named, *facts.behind, *facts.at_commit}
        own = await self._own(facts.marked & others)
        for inventory, keys in named.items():
            # Check the inventory that the object names, because *facts* may not contain
            # it: other users may create many ConfigMaps.
            if inventory not in own and _LABEL_VALUE.fullmatch(inventory) is not None:
                is_at_commit = inventory in facts.at_commit
                claims = await self._claimed(inventory, keys, objects, is_at_commit)
                found |= claims
                if inventory in facts.behind and inventory in facts.same:
                    # The claim delays the delete only for a while, because the other
                    # agent may drop the claim when it reads this commit.
                    early.update(claims)
        behind = {
            inventory: commit
            for inventory, (commit, _) in facts.behind.items()
            if inventory not in own
        }
        at_commit = facts.at_commit.keys() - own
        if facts.is_reselected:
            # The other agents may not have read the configuration that moves an object
            # to them, although they have read this commit.
            settings = f"{self._commit} with settings {self._selection}"
            behind |= dict.fromkeys(at_commit, settings)
        rest = {key: one for key, one in objects.items() if key not in found}
        if rest:
            for inventory in await self._wanting(at_commit, rest):
                behind[inventory] = f"{self._commit} without annotations"
        if not facts.is_all:
            behind[_UNSEEN] = ""
        last, waiting = self._waits.look(objects, behind, self._commit, self._now)
        if last == _UNSEEN and not facts.may_list:
            why = (
                "agentk may not list ConfigMaps, and another agent may still claim it: "
                f"deletes wait up to {OTHERS_SECONDS / 60:g} minutes (allow agentk to "
                "list them)"
            )
        elif last == _UNSEEN:
            why = (
                f"more than {MAX_SEEN} ConfigMaps have the label of inventories, and "
                "another agent may still claim it: deletes wait up to "
                f"{OTHERS_SECONDS / 60:g} minutes"
            )
        else:
            _, writer = facts.behind.get(last, ("", facts.at_commit.get(last, "")))
            is_at = (
                "may be at other settings"
                if last in at_commit
                else "is at another commit"
            )
            agent = clean(writer.partition("@")[0], MAX_ID)
            who = f"agent {agent}" if agent else "another agent"
            why = (
                f"waits up to {OTHERS_SECONDS / 60:g} minutes for {who}, which follows "
                f"the same source and may still claim it (its inventory "
                f"{clean(last, MAX_ID)} {is_at})"
            )
        for key, left in waiting.items():
            if key not in found or key in early:
                found[key] = Claim(why, False, left)
        return found

    async def _own(self, marked: Collection[str]) -> set[str]:
        """Return the ids in *marked* that are inventories of this agentk."""
        own = {self._inventory_id, *self._siblings}
        for inventory in sorted(set(marked) - own)[:MAX_MARKED]:
            if await self._wrote(inventory):
                own.add(inventory)
        return own

    def _is_own(self, said: Mapping[str, str]) -> bool:
        """
        Return whether a ConfigMap has this agentk's mark, in this agentk's own
        Namespace.
        """
        written = said.get(WRITER), said[_NAMESPACE]
        return written == (self._mark, self._namespace)

    async def _read(self, facts: _Facts) -> None:
        """
        Read the inventories, page by page, until `MAX_SEEN` ConfigMaps have been read.
        """
        seen = 0
        pages = self._client.list(
            _CONFIG_MAPS, label_selector=LABEL, limit=PAGE, metadata_only=True
        )
        async for page in pages:
            if seen >= MAX_SEEN:
                facts.is_all = False
                return
            seen += len(page)
            for one in page:
                inventory, said = one["metadata"]["labels"][LABEL], _said(one)
                # The first part of each inventory has the mark.
                if self._is_own(said):
                    facts.marked.add(inventory)
                    if inventory == self._inventory_id:
                        before = said.get(SELECTION, "")
                        facts.is_reselected = before != self._selection
                if self._may_follow_same(said) and said.get(COMMIT) == self._commit:
                    facts.at_commit[inventory] = said.get(WRITER, "")[:MAX_ID]
                elif self._may_follow_same(said):
                    commit, writer = said.get(COMMIT, ""), said.get(WRITER, "")
                    facts.behind[inventory] = commit[:MAX_ID], writer[:MAX_ID]
                    if _is_same(said.get(SOURCE, ""), self._source):
                        facts.same.add(inventory)

    async def may_follow(self, inventory: str) -> bool:
        """
        Return whether another agent's inventory may follow the same source.

        Return False if agentk may not list ConfigMaps.

        :raises CallError: if the API server is unavailable.
        """
        if _LABEL_VALUE.fullmatch(inventory) is None:
            # The object's annotation, which may contain any text, cannot be the id of
            # an inventory.
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

    async def is_claimed(self, key: ObjectKey, live: KubernetesObject) -> bool:
        """
        Return whether another agent certainly claims an object of this inventory.

        :raises CallError: if the API server is unavailable.
        """
        inventory = claimed_by(live)
        if inventory == self._inventory_id or not _LABEL_VALUE.fullmatch(inventory):
            return False
        found = await self._claimed(inventory, [key], {key: live}, False)
        return key in found and found[key].is_made

    async def _claimed(
        self,
        inventory: str,
        keys: Collection[ObjectKey],
        objects: Mapping[ObjectKey, KubernetesObject],
        is_at_commit: bool,
    ) -> Mapping[ObjectKey, Claim]:
        """
        Return the claims of one inventory to *keys*, whose annotations name it.

        If the inventory cannot be read, all objects are kept. If *is_at_commit* is
        true, the inventory also claims objects that it owned until this inventory took
        them, and that its commit contains.
        """
        other, found = clean(inventory, MAX_ID), dict[ObjectKey, Claim]()
        is_ours: bool | None = None
        try:
            namespaces = await self._namespaces_of(inventory)
            if len(namespaces) > MAX_CLAIMANTS:
                why = f"too many namespaces have a ConfigMap inventory-{other}"
                return dict.fromkeys(keys, Claim(why, False))
            for namespace in namespaces:
                async for part in self._parts_of(inventory, namespace):
                    if self._is_own(_said(part)):
                        if is_ours is None:
                            is_ours = inventory in await self._own([inventory])
                        if is_ours:
                            break
                    for key in keys:
                        entry = entry_of(part.get("data") or {}, key)
                        if entry is None:
                            continue
                        uid = objects[key]["metadata"].get("uid", "")
                        is_its = not entry.claimed and not entry.leaves
                        had = is_at_commit and is_its and entry.uid == uid
                        if had or entry.claimed == self._inventory_id:
                            why = f"the inventory {other} of another agent claims it"
                            found[key] = Claim(why, True)
        except CallError as error:
            if error.status is not Status.PERMISSION_DENIED:
                raise
            why = (
                f"its annotation names the inventory {other}, but agentk may not list "
                "ConfigMaps to check the claim: allow agentk to list them, or remove "
                f"the annotation {CLAIMED_BY}"
            )
            return dict.fromkeys(keys, Claim(why, False))
        return found

    async def _namespaces_of(self, inventory: str) -> list[str]:
        """
        Return the Namespaces that may contain an inventory with this id that a project
        still uses.

        Users may write any number of ConfigMaps in their Namespaces, but only one of
        each name.
        """
        found: list[str] = []
        pages = self._client.list(
            _CONFIG_MAPS,
            label_selector=f"{LABEL}={inventory}",
            field_selector=f"metadata.name={part_name(inventory, 0)}",
            limit=PAGE,
            metadata_only=True,
        )
        async for page in pages:
            # The inventory of a former project does not claim any object, see
            # `Leftovers`.
            said = map(_said, page)
            found += [one[_NAMESPACE] for one in said if SOURCE in one and PARTS in one]
            if len(found) > MAX_CLAIMANTS:
                break
        return found

    async def _parts_of(
        self, inventory: str, namespace: str
    ) -> AsyncIterator[KubernetesObject]:
        """Yield the parts of an inventory in one Namespace."""
        names, seen = {part_name(inventory, one) for one in range(MAX_PARTS)}, 0
        pages = self._client.list(
            _CONFIG_MAPS,
            namespace,
            label_selector=f"{LABEL}={inventory}",
            limit=WHOLE_PAGE,
        )
        async for page in pages:
            for part in page:
                if part["metadata"]["name"] in names:
                    yield part
            seen += len(page)
            if seen > 2 * MAX_PARTS:
                return

    def _may_follow_same(self, annotations: Mapping[str, str]) -> bool:
        """Return whether an inventory may be at this commit, or may reach it."""
        return (
            PARTS in annotations
            and bool(self._source)
            and _may_be_same(annotations.get(SOURCE, ""), self._source)
        )

    async def _wanting(
        self,
        inventories: Collection[str],
        objects: Mapping[ObjectKey, KubernetesObject],
    ) -> Collection[str]:
        """
        Return the inventories that claim any of *objects* only by an entry, without an
        annotation of the object.

        An annotation may be missing because the API server refused it at first, or
        because another agent that claims the same object overwrote it.  If too many
        inventories exist, the inventories that are not read are also returned.

        :param inventories: the inventories at this commit.
        """
        found, seen = set[str](), 0
        for inventory in sorted(inventories):
            if seen >= MAX_WANTING:
                found.add(inventory)
                continue
            pages = self._client.list(
                _CONFIG_MAPS, label_selector=f"{LABEL}={inventory}", limit=WHOLE_PAGE
            )
            async for page in pages:
                seen += len(page)
                if seen > MAX_WANTING or any(self._wants(one, objects) for one in page):
                    found.add(inventory)
                    break
        return found

    def _wants(self, part: KubernetesObject, objects: Collection[ObjectKey]) -> bool:
        """Return whether one part of an inventory claims any of *objects*."""
        data = part.get("data") or {}
        # The entry may claim the object from any inventory, because the object may have
        # changed its owner since then.
        entries = (entry_of(data, key) for key in objects)
        return any(entry is not None and entry.claimed for entry in entries)


def _said(part: KubernetesObject) -> Mapping[str, str]:
    """Return the relevant annotations of a ConfigMap, and its namespace."""
    said = part["metadata"].get("annotations") or {}
    facts = {name: said[name][:MAX_FACT] for name in _FACTS if name in said}
    facts[_NAMESPACE] = part["metadata"]["namespace"]
    return facts


def _is_same(theirs: str, ours: str) -> bool:
    """Return whether two inventories certainly follow one repository."""
    (one, _), (two, _) = map(followed_in, (theirs, ours))
    return bool(one.repository) and one.repository == two.repository


def _may_be_same(theirs: str, ours: str) -> bool:
    """Return whether two inventories may follow the same ref of one repository."""
    if not theirs:
        return False
    (one, name), (two, other) = map(followed_in, (theirs, ours))
    if one.repository != two.repository and (name != other or not one.may_be_in(two)):
        return False
    return one.may_be_ref(two)
