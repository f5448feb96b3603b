"""Carries out a plan: notes what will be, applies, prunes, notes what is."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
)
from enum import Enum
from functools import partial
from hashlib import sha256
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from modules.gitops.brakes import (
    CLAIMED_BY,
    GIVEN_BY,
    OWNER,
    UNDECIDED,
    brake_of_object,
    claimed_by,
    is_kept,
    owner_of,
)
from modules.gitops.conflicts import since_when
from modules.gitops.differences import AppliedVersion, applied_version
from modules.gitops.health import HealthStatus, health_of, why_it_stays
from modules.gitops.inventory import Inventory, InventoryEntry, InventoryStore
from modules.gitops.kept import KeptStates, Replaced
from modules.gitops.listing import Seen
from modules.gitops.manifests import Manifest, ObjectKey, Origin
from modules.gitops.ownership import FIELD_MANAGER, taken_over
from modules.gitops.parallel import in_parallel
from modules.gitops.plan import Action, Plan, SourceSettings, Verb, live_object
from modules.gitops.recreate import restorable, why_not_anew
from modules.gitops.refusal import words_of
from tunnel.errors import CallError, Status
from tunnel.interfaces import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.util.backoff import Backoff

__all__ = [
    "CLAIMED_MEANWHILE",
    "NOT_WHILE_FAILING",
    "Act",
    "Outcome",
    "Pruning",
    "Result",
    "Settled",
    "Superseded",
    "digest_of",
    "marked",
]

#: Why an object stays that was annotated since the plan was made: the next pass looks
#: whether an inventory claims it.
CLAIMED_MEANWHILE = "another agent may have claimed it in the meantime; retrying"

#: Why an object was not taken that belonged to no inventory.
TAKEN_MEANWHILE = "another agent took it in the meantime; retrying"

#: Why an object stays that would be pruned otherwise.
NOT_WHILE_FAILING = "nothing is pruned while an object cannot be applied"

#: Seconds between two looks at what is waited for: at first, and at most.
LOOK_FIRST, LOOK_MOST = 0.25, 5.0

#: Seconds for which a kind may be missing whose definition is established: API servers
#: learn of it one by one.
KIND_SECONDS = 30.0

#: Seconds after which a request that the API server had no room for is made again, at
#: first and at most, and how often.
BUSY_FIRST, BUSY_MOST, BUSY_TIMES = 0.5, 8.0, 8

#: Seconds for an object to go that is made anew: what it ran may take that long to end.
ANEW_SECONDS = 120.0

#: A version that no object has: the first one of etcd is of nothing.  What is applied
#: with it becomes a new object, or is refused because there is one (409).
NEVER = "1"


class Outcome(Enum):
    """What became of an object."""

    CREATED = "created"
    CHANGED = "changed"
    #: Deleted and made anew: it could not be changed.
    RECREATED = "recreated"
    UNCHANGED = "unchanged"
    #: Others have changed it, and that is only reported.
    LEFT = "left"
    PRUNED = "pruned"
    #: It stays, and is of the source no more.
    DETACHED = "detached"
    #: It was gone, or of others, and the inventory names it no more.
    FORGOTTEN = "forgotten"
    BLOCKED = "blocked"
    FAILED = "failed"
    #: Not tried, because of another that failed.
    SKIPPED = "skipped"


@attrs.frozen
class Result:
    """
    What became of one object.

    :ivar reason: of what did not succeed; as the API server says it.
    :ivar origin: where it stands in Git; None: it does not.
    """

    key: ObjectKey
    outcome: Outcome
    reason: str = ""
    origin: Origin | None = None

    def __str__(self) -> str:
        where = f"{self.origin}: " if self.origin is not None else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{where}{self.key} {self.outcome.value}{why}"


#: Another one says that objects are marked in another way, and applies all once more.
_FORM = "1"


@attrs.frozen
class Settled:
    """
    What an object was applied with.

    :ivar digest: of the manifest.
    :ivar owned: see `owned_fields`: it is another one once our fields are others.
    :ivar problem: why it is not so, and is not tried again before Git has another.
    """

    digest: str
    owned: str
    problem: str = ""

    @classmethod
    def read(cls, text: str) -> Settled | None:
        """What `text` wrote; None: it is not that."""
        form, _, rest = text.partition(":")
        digest, _, owned = rest.partition(":")
        return cls(digest, owned) if form == _FORM and digest and owned else None

    @property
    def text(self) -> str:
        """For the inventory."""
        return f"{_FORM}:{self.digest}:{self.owned}"


@attrs.define(eq=False)
class Pruning:
    """
    How far the deletes of a commit are.

    :ivar total: objects that are deleted.
    :ivar approved: an operator approved some of them.
    :ivar gone: how many are not there any more.
    :ivar stays: why each of the others is still there, of those that are waited for.
    """

    total: int
    approved: bool
    gone: int = 0
    stays: Mapping[ObjectKey, str] = attrs.field(factory=dict)


class Superseded(Exception):
    """Another agentk leads now, or a person spoke: nothing more may be changed."""


@attrs.define(eq=False)
class Act:
    """
    Carries out one plan.

    :param leads: asked before each change.
    :param applied_one: told of each object that was applied, as it is since then.
    :param kept: is told what objects were; None: nobody wants to know.
    :param stays: see `make_plan`; asked again before each delete.
    :param prunes: told when deletes begin; what it was told changes with them.
    :param pruned: told of each object that was deleted because it left Git.
    :param settled: what was applied before, and is not applied again while the object
        has the fields that it got then; kept from one plan to the next.
    :ivar results: of every object, once `run` has returned.
    """

    _client: IKubernetesClient
    _plan: Plan
    _settings: SourceSettings
    _store: InventoryStore
    _leads: Callable[[], bool]
    _clock: IReactorTime
    #: Seconds since 1970.
    _now: Callable[[], float]
    _applied_one: Callable[[Manifest, AppliedVersion], None] = lambda one, found: None
    _settled: dict[ObjectKey, Settled] = attrs.field(factory=dict)
    _kept: KeptStates | None = None
    _stays: Callable[[ObjectKey], str] = lambda key: ""
    _prunes: Callable[[Pruning], None] = lambda pruning: None
    _pruned: Callable[[ObjectKey], None] = lambda key: None
    _pruning: Pruning = attrs.field(init=False)
    results: dict[ObjectKey, Result] = attrs.field(factory=dict, init=False)
    _entries: dict[ObjectKey, InventoryEntry] = attrs.field(factory=dict, init=False)
    #: Of what leaves, by what each needs.
    _needed_by: dict[ObjectKey, list[ObjectKey]] = attrs.field(factory=dict, init=False)
    #: The ``default_namespace`` that all of these are of.
    _namespace: str = attrs.field(default="", init=False)
    #: How many objects were, for which there was no other way.
    _made_anew: int = attrs.field(default=0, init=False)
    #: As it was written last.
    _inventory: Inventory = attrs.field(init=False)
    #: What `_as_seen` found out.
    _seen: dict[ObjectKey, Settled] = attrs.field(factory=dict, init=False)

    async def run(self) -> None:
        """
        Do it.

        What fails of a single object is a result.

        :raises Superseded: another agentk leads, which reads what is written down; or
            a person has said something meanwhile.
        :raises CallError: the inventory cannot be written.
        """
        plan = self._plan
        self._inventory = plan.inventory
        self._entries = dict(plan.inventory.entries)
        self._namespace = (
            plan.inventory.default_namespace or self._settings.default_namespace
        )
        for key, action in plan.wanted.items():
            if action.verb is not Verb.REFUSE:
                # With the uid of now: one of before may have been deleted by others.
                applied = self._entries.get(key, InventoryEntry()).applied
                self._entries[key] = InventoryEntry(action.uid, applied=applied)
                # What another agentk has applied is known as well.
                if key not in self._settled and (known := Settled.read(applied)):
                    self._settled[key] = known
            elif action.claims:
                self._entries[key] = InventoryEntry(action.uid, claimed=action.claims)
        for key, action in plan.leaving.items():
            self._entries[key] = attrs.evolve(self._entries[key], held=action.held)
        if not all(self._is_settled(action) for action in plan.wanted.values()):
            # A commit may take minutes to be read.
            await self._checked(self._store.confirm())
        # Before the inventory has the commit: until then, whoever has these objects
        # waits for this source, and then looks at each object again.
        await self._claim()
        await self._write()
        if plan.whole:
            for key in [key for key in self._settled if key not in plan.wanted]:
                del self._settled[key]
        for layer in plan.order.layers:
            await self._keep_others(layer)
            await in_parallel(partial(self._apply, key) for key in layer)
            every = self._settings.awaits_all
            if awaited := [k for k in layer if every or k in plan.order.awaited]:
                await self._wait_for(awaited)
                await self._check_inventory()
        await self._write()
        failed = any(
            one.outcome in (Outcome.FAILED, Outcome.SKIPPED)
            for one in self.results.values()
        )
        if plan.leaving:
            await self._check_inventory()
        for key, action in plan.leaving.items():
            await self._leave(key, action, failed)
        if not failed:
            for other, needs in plan.leaving_order.needs.items():
                for key in needs:
                    self._needed_by.setdefault(key, []).append(other)
            pruned = [one for one in plan.leaving.values() if one.verb is Verb.PRUNE]
            approval = plan.inventory.approval
            approved = any(approval.covers(plan.commit, one.key) for one in pruned)
            self._pruning = Pruning(len(pruned), approved)
            if pruned:
                self._prunes(self._pruning)
            await self._keep(Replaced.PRUNED, (one.live for one in pruned))
            for layer in reversed(plan.leaving_order.layers):
                await in_parallel(partial(self._prune, key) for key in layer)
                await self._wait_until_gone(layer)
        blocked = any(one.outcome is Outcome.BLOCKED for one in self.results.values())
        if plan.whole and not blocked:
            self._namespace = self._settings.default_namespace
        await self._write()

    # Bookkeeping.

    async def _write(self) -> None:
        """Have the inventory be what `_entries` says, if it is not."""
        before = self._inventory
        after = attrs.evolve(
            before,
            entries=dict(self._entries),
            commit=self._plan.commit,
            default_namespace=self._namespace,
            of_other="",
            source=self._settings.source,
        )
        if attrs.astuple(after, recurse=False) == attrs.astuple(before, recurse=False):
            return
        self._check_leads()
        try:
            await self._store.write(after)
        except CallError as error:
            if error.status is Status.ABORTED:
                raise Superseded from None
            raise
        self._inventory = after

    async def _check_inventory(self) -> None:
        """
        End where another agentk, or a person, has written into it.

        Hours may have passed since it was written, and there may be nothing to write.
        """
        await self._checked(self._store.check())

    async def _checked(self, asking: Awaitable[None]) -> None:
        try:
            await asking
        except CallError as error:
            if error.status is Status.ABORTED:
                raise Superseded from None
            raise

    def _check_leads(self) -> None:
        if not self._leads():
            raise Superseded

    def _came_to(self, key: ObjectKey, outcome: Outcome, reason: str = "") -> None:
        action = self._plan.wanted.get(key)
        manifest = action.manifest if action is not None else None
        origin = manifest.origin if manifest is not None else None
        self.results[key] = Result(key, outcome, reason, origin)

    async def _claim(self) -> None:
        """Have objects of other inventories say that they are wanted here."""
        own = self._settings.inventory_id
        await in_parallel(
            partial(self._annotate, action, own)
            for action in self._plan.wanted.values()
            if action.claims and action.seen and action.seen.claimed_by != own
        )

    async def _annotate(self, action: Action, claimed_by: str | None) -> None:
        """Who may not do that gets nothing handed over."""
        assert action.manifest is not None
        key, annotations = action.key, {CLAIMED_BY: claimed_by}
        patch = {"metadata": {"uid": action.uid, "annotations": annotations}}
        self._check_leads()
        try:
            resource = await self._client.resource(
                action.manifest.api_version, key.kind
            )
            await self._client.patch(
                resource, key.name, patch, key.namespace, field_manager=FIELD_MANAGER
            )
        except CallError:
            # It is tried again with the next look at all objects.
            return

    # What objects were.

    async def _keep(
        self, why: Replaced, objects: Iterable[KubernetesObject | None]
    ) -> None:
        if self._kept is not None:
            self._check_leads()
            await self._kept.keep(why, (one for one in objects if one is not None))

    async def _keep_others(self, layer: Collection[ObjectKey]) -> None:
        """What others have set, of objects whose fields are taken."""
        if self._kept is None:
            return
        verb = Verb.APPLY if self._settings.repairs else Verb.ADOPT
        why = Replaced.REPAIRED if self._settings.repairs else Replaced.ADOPTED
        taken = [one for key in layer if (one := self._plan.wanted[key]).verb is verb]
        if taken:
            await self._keep(why, await in_parallel(self._whole(one) for one in taken))

    def _whole(
        self, action: Action
    ) -> Callable[[], Coroutine[Any, Any, KubernetesObject | None]]:
        async def look() -> KubernetesObject | None:
            assert action.manifest is not None
            key = action.key
            resource = await self._client.resource(
                action.manifest.api_version, key.kind
            )
            return await live_object(self._client, resource, key)

        return look

    # What is applied.

    def _as_seen(self, action: Action) -> Settled:
        """Return how an object would be settled if it were as it was applied."""
        found = self._seen.get(action.key)
        if found is None:
            assert action.manifest is not None
            owned = action.seen.owned if action.seen is not None else ""
            found = Settled(digest_of(action.manifest), owned)
            self._seen[action.key] = found
        return found

    def _is_settled(self, action: Action) -> bool:
        """Tell whether an object is as it was applied last."""
        if action.verb is not Verb.APPLY or action.takes:
            return False
        known = self._as_seen(action)
        # Where nothing is owned, as in some aggregated APIs, nothing is known.
        return bool(known.owned) and self._settled.get(action.key) == known

    async def _apply(self, key: ObjectKey) -> None:
        action = self._plan.wanted[key]
        assert action.manifest is not None
        if action.verb is Verb.REFUSE:
            self._came_to(key, Outcome.FAILED, action.reason)
            return
        if action.verb is Verb.LEAVE:
            self._came_to(key, Outcome.LEFT)
            return
        for needed in sorted(self._plan.order.needs[key]):
            if self.results[needed].outcome in (Outcome.FAILED, Outcome.SKIPPED):
                why = f"it needs {needed}, which {self.results[needed].outcome.value}"
                self._came_to(key, Outcome.SKIPPED, why)
                return
        seen = action.seen
        known = self._as_seen(action)
        digest = known.digest
        if seen is not None and self._is_settled(action):
            self._note_applied(key, action.manifest, seen.uid, known)
            self._came_to(key, Outcome.UNCHANGED)
            return
        before = self._settled.get(key)
        if before is not None and before.problem and before.digest == digest:
            self._came_to(key, Outcome.FAILED, before.problem)
            return
        same = before is not None and before.digest == digest
        ours = action.verb in (Verb.APPLY, Verb.CREATE)
        if same and ours and self._settings.only_reports:
            # Others have changed or deleted it, and nobody has looked yet.
            self._came_to(key, Outcome.LEFT)
            return
        try:
            created = await self._created(action)
            if created is None and action.verb in (Verb.CREATE, Verb.ADOPT):
                if why := await self._changed(action):
                    self._came_to(key, Outcome.FAILED, why)
                    return
            if action.takes and not await self._took(action):
                self._came_to(key, Outcome.FAILED, TAKEN_MEANWHILE)
                return
            if action.verb is Verb.ADOPT:
                await self._take_over(action)
            # What is adopted is taken over from whoever has its fields.
            force = self._settings.force or action.verb is Verb.ADOPT
            applied = created or await self._applied_or_taken_back(action, force, same)
        except CallError as error:
            self._settled.pop(key, None)
            anew = await self._anew(action, error)
            if anew is None:
                return
            applied = anew
        claimed = action.seen is not None and action.seen.claimed_by
        if claimed == self._settings.inventory_id and not action.takes:
            await self._annotate(action, None)
        found = applied_version(applied["metadata"])
        known = self._settled[key] = Settled(digest, found.fields)
        self._note_applied(key, action.manifest, found.uid, known)
        self._applied_one(action.manifest, found)
        self._came_to(key, _outcome(action.seen, applied))

    async def _created(self, action: Action) -> KubernetesObject | None:
        """The new object, in one request; None: there is one, or it takes two."""
        manifest = action.manifest
        if action.verb is not Verb.CREATE or manifest is None:
            return None
        try:
            return await self._applied(manifest, action.uid, False, is_new=True)
        except CallError as error:
            # What looks at nothing else than this, as some aggregated APIs may, is
            # asked as for any other object.
            if error.status is Status.ABORTED or "resourceVersion" in error.message:
                return None
            raise

    async def _applied_or_taken_back(
        self, action: Action, force: bool, same: bool
    ) -> KubernetesObject:
        """
        The object, as it is now.

        :param same: it was applied before as it is in Git now, so that what others have
            set is drift.
        """
        manifest = action.manifest
        assert manifest is not None
        try:
            return await self._applied(manifest, action.uid, force)
        except CallError as error:
            drift = same and self._settings.takes_back
            if error.status is not Status.ABORTED or not drift:
                raise
        await self._keep(Replaced.REPAIRED, [await self._whole(action)()])
        return await self._applied(manifest, action.uid, True)

    def _note_applied(
        self, key: ObjectKey, manifest: Manifest, uid: str, known: Settled
    ) -> None:
        """For the inventory, which the next agentk reads."""
        applied = self._entries[key].applied
        # A repair is no reason to write the inventory.
        if self._plan.whole:
            # Who may read ConfigMaps could try out what a Secret holds.
            secret = (key.group, key.kind) == ("", "Secret")
            applied = "" if secret or not known.owned else known.text
        self._entries[key] = InventoryEntry(uid, applied=applied)

    async def _anew(
        self, action: Action, refused: CallError
    ) -> KubernetesObject | None:
        """
        The object, made anew because it cannot be changed.

        None: it was not; the result says why.
        """
        key, manifest = action.key, action.manifest
        assert manifest is not None
        why: str | None = words_of(key, refused)
        try:
            if action.verb is Verb.APPLY:
                wanted = marked(manifest, self._settings.inventory_id, "")
                found = await why_not_anew(
                    self._client, manifest, wanted, refused, FIELD_MANAGER
                )
                if found == "":
                    return await self._recreated(action, manifest)
                why = f"{why}: {found}" if found else why
            elif action.verb is Verb.CREATE and refused.status not in UNDECIDED:
                if (was := await self._lost(key)) is not None:
                    why = await self._restore(manifest, was, refused)
            since = await since_when(self._client, manifest, refused)
            why = f"{why or ''}{since}"
        except CallError as error:
            why = words_of(key, error)
        self._came_to(key, Outcome.FAILED, why or "")
        return None

    async def _recreated(self, action: Action, manifest: Manifest) -> KubernetesObject:
        """:raises CallError: a brake keeps it, or it did not come to be."""
        key = action.key
        resource = await self._client.resource(manifest.api_version, key.kind)
        live = await live_object(self._client, resource, key)
        if live is not None:
            if live["metadata"].get("uid", "") != action.uid:
                raise _held("another object of this name came meanwhile")
            if owner_of(live) != self._settings.inventory_id:
                raise _held("others have it since then")
            if stays := await self._braked(live):
                raise _held(f"it would have to be made anew, and is kept: {stays}")
            if self._made_anew >= self._settings.limits.count:
                most = self._settings.limits.count
                raise _held(f"{most} objects were made anew; it is one of the next")
            self._made_anew += 1
            await self._keep(Replaced.RECREATED, [live])
            await self._delete_and_wait(key, resource, live)
        try:
            return await self._applied(manifest, "", self._settings.force)
        except CallError as error:
            if live is None or error.status in UNDECIDED:
                raise
            why = await self._restore(manifest, restorable(live), error)
            raise CallError(error.status, why) from None

    async def _restore(
        self, manifest: Manifest, was: KubernetesObject, refused: CallError
    ) -> str:
        """
        Have an object again that could not be made anew, and say so.

        What was there is better than nothing, and than trying it each minute.
        """
        self._check_leads()
        await self._client.apply(was, field_manager=FIELD_MANAGER)
        why = (
            "it was deleted, could not be made anew, and was restored: "
            f"{words_of(manifest.key, refused)}"
        )
        self._settled[manifest.key] = Settled(digest_of(manifest), "", why)
        return why

    async def _lost(self, key: ObjectKey) -> KubernetesObject | None:
        """What was deleted to be made anew, by an agentk that got no further."""
        entry = self._plan.inventory.entries.get(key)
        if entry is None or self._kept is None:
            return None
        found = await self._kept.replaced(key, entry.uid)
        if found is None:
            return None
        metadata = found["metadata"]
        annotations = {
            **(metadata.get("annotations") or {}),
            OWNER: self._settings.inventory_id,
        }
        return {**found, "metadata": {**metadata, "annotations": annotations}}

    async def _delete_and_wait(
        self, key: ObjectKey, resource: KubernetesResource, live: KubernetesObject
    ) -> None:
        metadata = live["metadata"]
        self._check_leads()
        await self._client.delete(
            resource,
            key.name,
            key.namespace,
            uid=metadata.get("uid", ""),
            resource_version=metadata.get("resourceVersion", ""),
        )
        until, backoff = self._clock.seconds() + ANEW_SECONDS, self._looks()
        while (found := await live_object(self._client, resource, key)) is not None:
            if found["metadata"].get("uid", "") != metadata.get("uid", ""):
                raise _held("another object of this name came meanwhile")
            if self._clock.seconds() >= until:
                raise _held(
                    f"it was deleted to be made anew, and is still there after "
                    f"{ANEW_SECONDS:g} s"
                )
            await deferLater(self._clock, backoff.failed())

    async def _took(self, action: Action) -> bool:
        """
        Mark an object of no inventory as ours, unless another agent was faster.

        Two agents that marked it both would each believe that it is theirs, and the
        one whose commit does not have it would delete it.
        """
        assert action.manifest is not None
        key, own = action.key, self._settings.inventory_id
        resource = await self._client.resource(action.manifest.api_version, key.kind)
        for _ in range(BUSY_TIMES):
            live = await live_object(self._client, resource, key)
            if live is None or live["metadata"].get("uid", "") != action.uid:
                return False
            if owner := owner_of(live):
                return owner == own
            metadata = {
                "uid": action.uid,
                "resourceVersion": live["metadata"].get("resourceVersion", ""),
                "annotations": {OWNER: own, CLAIMED_BY: None, GIVEN_BY: None},
            }
            self._check_leads()
            try:
                await self._client.patch(
                    resource,
                    key.name,
                    {"metadata": metadata},
                    key.namespace,
                    field_manager=FIELD_MANAGER,
                )
            except CallError as error:
                # Others may have changed anything in it.
                if error.status is not Status.ABORTED:
                    raise
            else:
                return True
        return False

    async def _take_over(self, action: Action) -> None:
        """Have the fields be ours that were applied from files by other means."""
        assert action.manifest is not None
        key = action.key
        resource = await self._client.resource(action.manifest.api_version, key.kind)
        live = await live_object(self._client, resource, key)
        fields = None if live is None else taken_over(live["metadata"], FIELD_MANAGER)
        if live is None or fields is None:
            return
        self._check_leads()
        names = ("uid", "resourceVersion")
        metadata = {name: live["metadata"].get(name, "") for name in names}
        change = {"metadata": {**metadata, "managedFields": fields}}
        await self._client.patch(resource, key.name, change, key.namespace)

    async def _changed(self, action: Action) -> str:
        """
        Why an object that was not ours may not be written now; empty: it may.

        Hours may have passed since the plan was made.
        """
        assert action.manifest is not None
        manifest, key = action.manifest, action.key
        try:
            resource = await self._client.resource(manifest.api_version, key.kind)
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            return ""
        live = await live_object(self._client, resource, key)
        if live is None or owner_of(live) == self._settings.inventory_id:
            return ""
        if live["metadata"].get("uid", "") == action.uid:
            return ""
        return "another object of this name came meanwhile; it is looked at again"

    async def _applied(
        self, manifest: Manifest, uid: str, force: bool, is_new: bool = False
    ) -> KubernetesObject:
        """:param is_new: only where no object of that name is there; else ABORTED."""
        wanted = marked(manifest, self._settings.inventory_id, uid)
        if is_new:
            wanted["metadata"]["resourceVersion"] = NEVER
        until = self._clock.seconds() + KIND_SECONDS
        backoff = Backoff(lambda: 1.0, BUSY_FIRST, BUSY_MOST)
        tries = 0
        while True:
            self._check_leads()
            try:
                return await self._client.apply(
                    wanted, field_manager=FIELD_MANAGER, force=force
                )
            except CallError as error:
                tries += 1
                busy = error.status is Status.RESOURCE_EXHAUSTED and tries < BUSY_TIMES
                # Of a kind that the source itself defines.
                missing = error.status is Status.NOT_FOUND and bool(
                    self._plan.order.needs[manifest.key]
                )
                if not busy and not (missing and self._clock.seconds() < until):
                    raise
            await deferLater(self._clock, backoff.failed())

    @staticmethod
    def _looks() -> Backoff:
        """Pauses between looks at what is waited for."""
        return Backoff(lambda: 1.0, LOOK_FIRST, LOOK_MOST)

    async def _wait_for(self, keys: Collection[ObjectKey]) -> None:
        """Until they are current; what is not is a failure of it."""
        waiting = {
            key
            for key in keys
            if self.results[key].outcome
            not in (Outcome.FAILED, Outcome.SKIPPED, Outcome.LEFT)
        }
        timeout = self._settings.reconcile_timeout
        if not timeout:
            return
        until, backoff = self._clock.seconds() + timeout, self._looks()
        while waiting:
            reasons: dict[ObjectKey, str] = {}
            for key in sorted(waiting):
                status, reason = await self._health(key)
                if status is HealthStatus.CURRENT:
                    waiting.discard(key)
                elif status is HealthStatus.FAILED:
                    waiting.discard(key)
                    self._came_to(key, Outcome.FAILED, reason)
                else:
                    reasons[key] = reason
            if waiting and self._clock.seconds() >= until:
                for key in waiting:
                    why = f"not current in {timeout:g} s: "
                    self._came_to(key, Outcome.FAILED, why + reasons[key])
                return
            if waiting:
                await deferLater(self._clock, backoff.failed())

    async def _health(self, key: ObjectKey) -> tuple[HealthStatus, str]:
        action = self._plan.wanted[key]
        assert action.manifest is not None
        try:
            resource = await self._client.resource(
                action.manifest.api_version, key.kind
            )
            live = await live_object(self._client, resource, key)
        except CallError as error:
            return HealthStatus.IN_PROGRESS, error.message
        if live is None:
            return HealthStatus.IN_PROGRESS, "it is gone"
        found = health_of(live, self._now())
        return found.status, found.reason

    # What is deleted.

    async def _leave(self, key: ObjectKey, action: Action, failed: bool) -> None:
        """What has no delete of its own."""
        if action.verb is Verb.FORGET:
            self._entries.pop(key, None)
            self._came_to(key, Outcome.FORGOTTEN, action.reason)
        elif action.verb is Verb.BLOCK:
            self._came_to(key, Outcome.BLOCKED, action.reason)
        elif action.verb is Verb.DETACH:
            await self._detach(key, action)
        elif failed:
            self._came_to(key, Outcome.BLOCKED, NOT_WHILE_FAILING)

    async def _detach(self, key: ObjectKey, action: Action) -> None:
        """Take our mark off; everything else stays."""
        assert action.live is not None
        given_by = self._settings.inventory_id if action.gives else None
        metadata = {
            "uid": action.uid,
            "resourceVersion": action.live["metadata"].get("resourceVersion"),
            "annotations": {OWNER: None, GIVEN_BY: given_by},
        }
        patch = {"metadata": metadata}
        self._check_leads()
        try:
            resource = await self._resource_of(action.live)
            await self._client.patch(
                resource, key.name, patch, key.namespace, field_manager=FIELD_MANAGER
            )
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                self._came_to(key, Outcome.FAILED, error.message)
                return
        self._entries.pop(key, None)
        self._came_to(key, Outcome.DETACHED, action.reason)

    async def _resource_of(self, live: KubernetesObject) -> KubernetesResource:
        return await self._client.resource(live["apiVersion"], live["kind"])

    async def _prune(self, key: ObjectKey) -> None:
        action = self._plan.leaving[key]
        assert action.live is not None
        for other in self._needed_by.get(key, ()):
            # Such as an operator, without which its objects would never go.
            if self.results[other].outcome is not Outcome.PRUNED:
                self._came_to(key, Outcome.BLOCKED, f"{other} needs it, and is there")
                return
        try:
            resource = await self._resource_of(action.live)
            while not await self._deleted(key, action, resource):
                pass
        except CallError as error:
            self._came_to(key, Outcome.FAILED, words_of(key, error))

    async def _deleted(
        self, key: ObjectKey, action: Action, resource: KubernetesResource
    ) -> bool:
        """
        Delete the object if it is still what the plan was made for; whether that is
        decided: False where it changed between the look and the delete.
        """
        live = await live_object(self._client, resource, key)
        if live is None or live["metadata"].get("uid", "") != action.uid:
            self._came_to(key, Outcome.PRUNED)
            return True
        if owner_of(live) != self._settings.inventory_id:
            self._entries.pop(key, None)
            self._came_to(key, Outcome.FORGOTTEN, "others have it since then")
            return True
        if stays := await self._braked(live) or self._stays(key):
            self._came_to(key, Outcome.BLOCKED, stays)
            return True
        assert action.live is not None
        if claimed_by(live) not in ("", claimed_by(action.live)):
            self._came_to(key, Outcome.BLOCKED, CLAIMED_MEANWHILE)
            return True
        await self._check_inventory()
        self._check_leads()
        try:
            await self._client.delete(
                resource,
                key.name,
                key.namespace,
                uid=action.uid,
                resource_version=live["metadata"].get("resourceVersion", ""),
                propagation=self._settings.propagation,
            )
        except CallError as error:
            if error.status is Status.ABORTED:
                await deferLater(self._clock, LOOK_FIRST)
                return False
            raise
        self._pruned(key)
        self._came_to(key, Outcome.PRUNED)
        return True

    async def _braked(self, live: KubernetesObject) -> str:
        """Why an object may not go now; empty: it may."""
        owner = self._settings.inventory_id
        return is_kept(live) or await brake_of_object(
            self._client, live, owner, self._goes
        )

    def _goes(self, key: ObjectKey) -> bool:
        """Whether an object is deleted for itself, or was."""
        action, result = self._plan.leaving.get(key), self.results.get(key)
        return (
            action is not None
            and action.verb is Verb.PRUNE
            and (result is None or result.outcome is Outcome.PRUNED)
        )

    async def _wait_until_gone(self, keys: Collection[ObjectKey]) -> None:
        """What is gone leaves the inventory; what is not, stays in it."""
        waiting = {key for key in keys if self.results[key].outcome is Outcome.PRUNED}
        timeout = self._settings.prune_timeout
        if not timeout:
            return
        until, backoff = self._clock.seconds() + timeout, self._looks()
        while waiting:
            reasons: Mapping[ObjectKey, str] = {
                key: why
                for key in sorted(waiting)
                if (why := await self._not_gone(key))
            }
            for key in waiting - reasons.keys():
                self._entries.pop(key, None)
                self._pruning.gone += 1
            self._pruning.stays = reasons
            waiting &= reasons.keys()
            if waiting and self._clock.seconds() >= until:
                for key in waiting:
                    why = f"not gone in {timeout:g} s: {reasons[key]}"
                    self._came_to(key, Outcome.FAILED, why)
                return
            if waiting:
                await deferLater(self._clock, backoff.failed())

    async def _not_gone(self, key: ObjectKey) -> str:
        """Why an object is still there; empty: it is gone."""
        action = self._plan.leaving[key]
        assert action.live is not None
        try:
            resource = await self._resource_of(action.live)
            live = await live_object(self._client, resource, key)
        except CallError as error:
            return "" if error.status is Status.NOT_FOUND else error.message
        if live is None or live["metadata"].get("uid", "") != action.uid:
            return ""
        return why_it_stays(live, self._now())


def _held(why: str) -> CallError:
    return CallError(Status.FAILED_PRECONDITION, why)


def marked(manifest: Manifest, inventory_id: str, uid: str) -> KubernetesObject:
    """
    What is sent to the API server.

    :param uid: of another object of this name nothing is overwritten; empty: there may
        be none.
    """
    annotations = {**manifest.annotations, OWNER: inventory_id}
    metadata = {**manifest.object["metadata"], "annotations": annotations}
    if uid:
        metadata["uid"] = uid
    return {**_with_data(manifest.object), "metadata": metadata}


def _with_data(found: dict[str, Any]) -> dict[str, Any]:
    """
    A Secret with its ``stringData`` in ``data``, as the API server would store it.

    It does not note who set what came as ``stringData``: others could change it unseen,
    and what left Git would stay.
    """
    texts = found.get("stringData")
    data = found.get("data") or {}
    if (found.get("apiVersion"), found.get("kind")) != ("v1", "Secret"):
        return found
    if not isinstance(texts, dict) or not isinstance(data, dict):
        return found
    if not all(isinstance(one, str) for one in texts.values()):
        # The API server says what is wrong.
        return found
    coded = {key: b64encode(one.encode()).decode() for key, one in texts.items()}
    rest = {key: one for key, one in found.items() if key != "stringData"}
    return {**rest, "data": {**data, **coded}}


def digest_of(manifest: Manifest) -> str:
    """
    Return a digest of a manifest, and of its ciphertext if it was encrypted.

    See `Manifest.is_as`.
    """
    text = json.dumps(manifest.object, sort_keys=True, separators=(",", ":"))
    text += manifest.ciphertext
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _outcome(seen: Seen | None, applied: KubernetesObject) -> Outcome:
    if seen is None:
        return Outcome.CREATED
    metadata = applied["metadata"]
    if seen.uid != metadata.get("uid", ""):
        return Outcome.RECREATED
    same = seen.version == metadata.get("resourceVersion", "")
    return Outcome.UNCHANGED if same else Outcome.CHANGED
