"""
Leftovers: objects in inventories that no project of the agent uses any more.

A renamed project takes over the objects of its former inventory that Git still
contains.  An object that was removed from Git earlier and waited for an approval stays
in the former inventory, which no project processes. agentk looks for such objects, and
names them in its log and in the status of the project that follows the same ref.  An
inventory without such objects is marked, so that no other agent waits for its commits.
If another agent claims such an object, agentk releases the object for that agent.

A search examines a limited number of objects; the next one continues behind them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.agent.inventory.claims import OTHERS_SECONDS, Claims, Waits
from modules.gitops.agent.inventory.inventory import (
    LABEL,
    PARTS,
    SOURCE,
    WRITER,
    InventoryEntry,
    InventoryStore,
)
from modules.gitops.agent.objects.error_statuses import AWAY
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.live import live_object, patch_unchanged
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import (
    CLAIMED_BY,
    GIVEN_BY,
    OWNER,
    claimed_by,
    owner_of,
    was_given,
)
from modules.gitops.agent.project.project import Project
from modules.gitops.agent.source.snapshot import Location, followed_in
from tunnel.api import (
    AgentScope,
    IKubernetesClient,
    KubernetesObject,
    KubernetesResource,
)
from tunnel.errors import CallError
from tunnel.toolkit.texts import clean

__all__ = ["LOOK_AGAIN", "LOOK_FIRST", "MAX_INVENTORIES", "MAX_LOOKED", "Leftovers"]

_CONFIG_MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)

#: Seconds between attempts until all projects have read a commit, which is also the
#: time between two steps of one search; and seconds between two searches.
LOOK_FIRST, LOOK_AGAIN = 30.0, 600.0

#: Maximum number of former inventories that one step of a search reads, and maximum
#: number of objects that the step examines.
MAX_INVENTORIES, MAX_LOOKED = 20, 200

#: Number of ConfigMaps in one page, which are read without their content, and maximum
#: number of ConfigMaps in all pages.
PAGE, MAX_SEEN = 8, 4000

#: Maximum number of objects that a line names, and maximum characters of a line.
NAMED, MAX_LINE = 5, 900


@attrs.define(eq=False)
class _Search:
    """
    Progress of one search, which may take several steps.

    :ivar former: the former inventories that are left, each with the location that its
        project followed.
    :ivar after: the object of the first inventory that was examined last; None if none
        was examined.
    :ivar staying: the objects of the first inventory that stay.
    :ivar is_empty: whether the first inventory owns no object so far.
    :ivar lines: as in `Leftovers`.
    """

    former: dict[str, Location]
    after: ObjectKey | None = None
    staying: list[ObjectKey] = attrs.field(factory=list)
    is_empty: bool = True
    lines: dict[Location, list[str]] = attrs.field(factory=dict)

    def begin_next(self, inventory: str) -> None:
        """Note that all objects of an inventory were examined."""
        del self.former[inventory]
        self.after, self.staying, self.is_empty = None, [], True


@attrs.define(eq=False)
class Leftovers:
    """
    Search for objects that former projects of this agent left in the cluster.

    :param client: acts as agentk.
    :param projects: the active projects.
    :param namespace: the Namespace of all inventories.
    :param mark: returns this agentk's mark, as in `InventoryWriter`.
    :param store: returns the inventory with an id.
    :param wrote: see `Claims`.
    :param scope: returns the part of the cluster that the agent works in.
    """

    _log = Logger()

    _client: IKubernetesClient
    _projects: Mapping[str, Project]
    _clock: IReactorTime
    _namespace: str
    _mark: Callable[[], str]
    _store: Callable[[str], InventoryStore]
    _wrote: Callable[[str], Awaitable[bool]]
    _scope: Callable[[], AgentScope]
    #: Lines by the location that their project followed.
    _lines: dict[Location, list[str]] = attrs.field(factory=dict, init=False)
    #: Time when the next search is due, and time until which searches follow each other
    #: soon: other agents may be about to claim objects of a removed project.
    _due: float = attrs.field(default=0.0, init=False)
    _soon: float = attrs.field(default=0.0, init=False)
    #: The search in progress; None between two searches.
    _search: _Search | None = attrs.field(default=None, init=False)

    def of(self, project: Project) -> Sequence[str]:
        """Return the lines about objects that an earlier version of *project* left."""
        return self._lines.get(project.desired.location, ())

    def changed(self) -> None:
        """Search soon, because the projects of the configuration have changed."""
        self._due = 0.0
        self._soon = self._clock.seconds() + OTHERS_SECONDS
        self._search = None

    async def run(self) -> None:
        """Search periodically until cancelled."""
        while True:
            await deferLater(self._clock, LOOK_FIRST)
            if self._clock.seconds() < self._due or not self._is_complete:
                continue
            now = self._clock.seconds()
            self._due = now if now < self._soon else now + LOOK_AGAIN
            try:
                found = await self._look()
            except CallError as error:
                self._debug(error)
                continue
            if found is None:
                self._due = 0.0
                continue
            if found != self._lines:
                said = {line for lines in self._lines.values() for line in lines}
                for line in (one for lines in found.values() for one in lines):
                    if line not in said:
                        self._log.warn("{line}", line=line)
                self._lines = found

    @property
    def _is_complete(self) -> bool:
        """
        Whether all projects have read a commit.

        The ids of their inventories are known earlier.  But a project without a commit
        may need the objects of its former inventory, which must then neither be
        reported as unused nor released for another agent.
        """
        every = self._projects.values()
        return bool(every) and all(one.desired.known_commit for one in every)

    async def _look(self) -> dict[Location, list[str]] | None:
        """
        Continue the search; return its lines, or None if it has not ended.

        :raises CallError: if the API server is unavailable; the next step repeats this
            one.
        """
        search = self._search or _Search(await self._former())
        self._search = search
        left = MAX_LOOKED
        for inventory, followed in list(search.former.items())[:MAX_INVENTORIES]:
            try:
                left -= await self._examine(inventory, followed, search, left)
            except CallError as error:
                if error.status in AWAY:
                    raise
                self._debug(error)
                search.begin_next(inventory)
                continue
            if inventory in search.former:
                break
        if search.former or self._search is not search:
            return None
        self._search = None
        return search.lines

    async def _examine(
        self, inventory: str, followed: Location, search: _Search, left: int
    ) -> int:
        """
        Examine the next objects of a former inventory, *left* at most.

        :returns: the number of examined objects.
        """
        store = self._store(inventory)
        # Ignore ConfigMaps that look like an inventory: other users may write them.
        if not await store.is_of_us(inventory):
            search.begin_next(inventory)
            return 0
        entries = (await store.read()).entries
        after = search.after
        keys = [key for key in sorted(entries) if after is None or key > after]
        await self._find_staying(
            inventory, {key: entries[key] for key in keys[:left]}, search
        )
        if len(keys) > left:
            return left
        if search.staying:
            line = _line(inventory, self._namespace, search.staying)
            search.lines.setdefault(followed, []).append(line)
        if search.is_empty and followed.ref:
            await self._release(inventory, store)
        search.begin_next(inventory)
        return len(keys)

    async def _release(self, inventory: str, store: InventoryStore) -> None:
        """
        Mark an inventory that owns no objects any more, so that no other agent waits
        for this inventory.
        """
        try:
            await store.release()
        except CallError as error:
            # A failure is harmless: other agents wait only once, and the next search
            # retries.
            self._log.debug(
                "cannot release the former inventory {inventory}: {why}",
                inventory=inventory,
                why=error.message,
            )

    async def _former(self) -> dict[str, Location]:
        """
        Return the ids of former inventories, and the locations that their projects
        followed.
        """
        present = {one.desired.inventory for one in self._projects.values()}
        mark, seen = self._mark(), 0
        found: dict[str, Location] = {}
        pages = self._client.list(
            _CONFIG_MAPS,
            self._namespace,
            label_selector=LABEL,
            limit=PAGE,
            metadata_only=True,
        )
        async for page in pages:
            for one in page:
                metadata = one["metadata"]
                said = metadata.get("annotations") or {}
                inventory = metadata["labels"][LABEL]
                ours = PARTS in said and said.get(WRITER) == mark
                if ours and inventory not in present:
                    found[inventory] = followed_in(said.get(SOURCE, ""))[0]
            seen += len(page)
            if seen >= MAX_SEEN:
                break
        return dict(sorted(found.items()))

    async def _find_staying(
        self,
        inventory: str,
        entries: Mapping[ObjectKey, InventoryEntry],
        search: _Search,
    ) -> None:
        """
        Add to the search the objects that stay in the cluster: a former inventory
        still owns them, or they were given to it.

        Objects that a project has in Git are left out: the project takes them, or
        reports why not.  This also removes claims of former inventories, and releases
        objects that another agent claims.
        """
        every = await self._client.resources()
        kinds = {(one.group, one.kind): one for one in every}
        for key, entry in entries.items():
            if not self._scope().contains(key.namespace):
                # The object may still exist.
                search.is_empty, search.after = False, key
                continue
            is_wanted = any(one.has_in_git(key) for one in self._projects.values())
            resource = kinds.get((key.group, key.kind))
            try:
                stays = await self._stays(inventory, key, entry, resource, is_wanted)
            except CallError as error:
                if error.status in AWAY:
                    raise
                # One object must not hide the objects after it.
                self._debug(error)
                search.is_empty, stays = False, False
            search.after = key
            if stays:
                search.is_empty = False
                if not is_wanted:
                    search.staying.append(key)

    async def _stays(
        self,
        inventory: str,
        key: ObjectKey,
        entry: InventoryEntry,
        resource: KubernetesResource | None,
        is_wanted: bool,
    ) -> bool:
        """
        Return whether a former inventory still owns an object, or it was given to it.

        :raises CallError: if the API server refuses a request, or the object has
            changed.
        """
        live = await live_object(self._client, resource, key)
        if live is None:
            return False
        owner = owner_of(live)
        if entry.claimed and owner:
            await self._drop_claim(inventory, live)
        if owner == inventory:
            # Only a signed uid shows that the former project had the object.
            gives = entry.is_signed and not is_wanted
            return not (gives and await self._give(inventory, key, live))
        return was_given(live, entry.claimed, entry.uid, inventory)

    def _debug(self, error: CallError) -> None:
        # Do not warn: the projects report problems of the cluster.
        self._log.debug("cannot look for former inventories: {why}", why=error.message)

    async def _give(
        self, inventory: str, key: ObjectKey, live: KubernetesObject
    ) -> bool:
        """
        Release an object of a former inventory if another agent claims it.

        :returns: whether the object was released.
        :raises CallError: if the API server is unavailable, or the object has changed.
        """
        claims = Claims(
            self._client,
            inventory,
            self._mark(),
            self._namespace,
            source="",
            commit="",
            waits=Waits(),
            now=0.0,
            siblings=[one.desired.inventory for one in self._projects.values()],
            wrote=self._wrote,
        )
        if not await claims.is_claimed(key, live):
            return False
        change = {"annotations": {OWNER: None, GIVEN_BY: inventory}}
        await self._change(live, change)
        return True

    async def _change(
        self, live: KubernetesObject, change: Mapping[str, object]
    ) -> None:
        resource = await self._client.resource(live["apiVersion"], live["kind"])
        await patch_unchanged(self._client, resource, live, change, FIELD_MANAGER)

    async def _drop_claim(self, inventory: str, live: KubernetesObject) -> None:
        """
        Remove the claim of a former inventory from an object.

        Otherwise the owner would release the object when the object is removed from
        Git, and no agent would delete the object.

        :raises CallError: if the API server is unavailable, or the object has changed.
        """
        if claimed_by(live) != inventory:
            return
        await self._change(live, {"annotations": {CLAIMED_BY: None}})


def _line(inventory: str, namespace: str, staying: Sequence[ObjectKey]) -> str:
    named = ", ".join(map(str, staying[:NAMED]))
    more = f" and {len(staying) - NAMED} more" if len(staying) > NAMED else ""
    count = len(staying)
    objects = "1 object stays" if count == 1 else f"{count} objects stay"
    return clean(
        f"{objects} in the cluster from a former project of this agent (inventory "
        f"{inventory}), which no project prunes: {named}{more}; delete with kubectl "
        "what is not needed, or give a project its former id and name to have it "
        "prune them; to keep them and end this message, delete ConfigMap "
        f"{namespace}/inventory-{inventory}",
        MAX_LINE,
        " ",
    )
