"""Applies a plan to the cluster: updates the inventory, applies, prunes, waits."""

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

from modules.gitops.agent.apply.backups import KeptStates, Replaced
from modules.gitops.agent.apply.refusal import words_of
from modules.gitops.agent.inventory.inventory import (
    Inventory,
    InventoryEntry,
    InventoryStore,
)
from modules.gitops.agent.inventory.listing import Seen
from modules.gitops.agent.objects.differences import AppliedVersion, applied_version
from modules.gitops.agent.objects.health import HealthStatus, health_of, why_it_stays
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import Manifest, ObjectKey, Origin
from modules.gitops.agent.objects.ownership import FIELD_MANAGER, taken_over
from modules.gitops.agent.objects.prune_guards import (
    CLAIMED_BY,
    GIVEN_BY,
    OWNER,
    UNDECIDED,
    claimed_by,
    guard_of_object,
    is_kept,
    owner_of,
    was_given,
)
from modules.gitops.agent.plan.conflicts import since_when
from modules.gitops.agent.plan.plan import Action, Plan, SourceSettings, Verb
from modules.gitops.agent.plan.recreate import restorable, why_not_recreated
from tunnel.api import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.parallel import in_parallel

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

#: Reason why an object is not pruned that was annotated after the plan was made: the
#: next pass checks whether another inventory claims it.
CLAIMED_MEANWHILE = "another agent may have claimed it in the meantime; retrying"

#: Reason why an object without an inventory could not be taken over.
TAKEN_MEANWHILE = "another agent took it in the meantime; retrying"

#: Reason why an object is not pruned although the plan says so.
NOT_WHILE_FAILING = "nothing is pruned while an object cannot be applied"

#: Seconds between two checks of an object that is waited for: initial and maximum.
LOOK_FIRST, LOOK_MOST = 0.25, 5.0

#: Seconds that a kind may stay unknown after its definition was established: API
#: servers learn of it one by one.
KIND_SECONDS = 30.0

#: Backoff after a request that an overloaded API server rejected: initial and maximum
#: seconds, and the number of attempts.
BUSY_FIRST, BUSY_MOST, BUSY_TIMES = 0.5, 8.0, 8

#: Attempts to claim an object, with the same backoff.
ANNOTATE_TIMES = 4

#: Seconds to wait for the deletion of an object that is recreated: its pods may take
#: that long to end.
RECREATE_SECONDS = 120.0

#: A resource version that no object has, because etcd's first version precedes all
#: objects. Applying with it creates an object, or fails with 409 if the object exists.
NEVER = "1"


class Outcome(Enum):
    """The result of a plan for an object."""

    CREATED = "created"
    CHANGED = "changed"
    #: Deleted and created again, because it could not be changed.
    RECREATED = "recreated"
    UNCHANGED = "unchanged"
    #: Changed by other clients; the drift is only reported.
    LEFT = "left"
    PRUNED = "pruned"
    #: Left in the cluster, but no longer owned by the source.
    DETACHED = "detached"
    #: Removed from the inventory, because it was gone or had another owner.
    FORGOTTEN = "forgotten"
    BLOCKED = "blocked"
    FAILED = "failed"
    #: Not attempted, because another object failed.
    SKIPPED = "skipped"


@attrs.frozen
class Result:
    """
    The result for one object.

    :ivar reason: why it did not succeed, in the words of the API server.
    :ivar origin: the place of the manifest in Git; None if Git does not contain it.
    """

    key: ObjectKey
    outcome: Outcome
    reason: str = ""
    origin: Origin | None = None

    def __str__(self) -> str:
        where = f"{self.origin}: " if self.origin is not None else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{where}{self.key} {self.outcome.value}{why}"


#: Version of the annotations that mark objects. A new version applies all objects once
#: more.
_FORM = "1"


@attrs.frozen
class Settled:
    """
    The applied manifest of an object, and the fields that the object got.

    :ivar digest: the digest of the manifest.
    :ivar owned: the result of `owned_fields`, which changes with the set of our fields.
    :ivar problem: why applying failed; it is not retried until the manifest changes.
    """

    digest: str
    owned: str
    problem: str = ""

    @classmethod
    def read(cls, text: str) -> Settled | None:
        """Parse the result of `text`; return None if the format differs."""
        form, _, rest = text.partition(":")
        digest, _, owned = rest.partition(":")
        return cls(digest, owned) if form == _FORM and digest and owned else None

    @property
    def text(self) -> str:
        """The form that is stored in the inventory."""
        return f"{_FORM}:{self.digest}:{self.owned}"


@attrs.define(eq=False)
class Pruning:
    """
    Progress of the deletes of a commit.

    :ivar total: the number of objects to delete.
    :ivar approved: whether an operator approved some of the deletes.
    :ivar gone: the number of objects that no longer exist.
    :ivar stays: the remaining objects that are waited for, each with the reason why it
        still exists.
    """

    total: int
    approved: bool
    gone: int = 0
    stays: Mapping[ObjectKey, str] = attrs.field(factory=dict)


class Superseded(Exception):
    """
    Raised when another agentk leads or an operator gave an order: nothing more may be
    changed.
    """


@attrs.define(eq=False)
class Act:
    """
    The execution of one plan.

    :param leads: called before each change; whether this agentk still leads.
    :param applied_one: called with each applied object and its new version.
    :param kept: stores the previous states of objects; None if they are not needed.
    :param stays: see `make_plan`; called again before each delete.
    :param prunes: called with the progress when deletes begin; the object is updated as
        they proceed.
    :param pruned: called with each object that was deleted because it left Git.
    :param settled: the results of earlier plans. An object is not applied again while
        it has the fields that it got then.
    :ivar results: the result of each object, once `run` has returned.
    """

    _client: IKubernetesClient
    _plan: Plan
    _settings: SourceSettings
    _store: InventoryStore
    _leads: Callable[[], bool]
    _clock: IReactorTime
    #: Return the current time in seconds since 1970.
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
    #: For each object that leaves, the leaving objects that need it.
    _needed_by: dict[ObjectKey, list[ObjectKey]] = attrs.field(factory=dict, init=False)
    #: The ``default_namespace`` of all entries.
    _namespace: str = attrs.field(default="", init=False)
    #: An attempt to claim an object was denied until its last repetition.
    _may_not_annotate: bool = attrs.field(default=False, init=False)
    #: The number of objects that were recreated.
    _recreated_count: int = attrs.field(default=0, init=False)
    #: The inventory as it was last read or written.
    _inventory: Inventory = attrs.field(init=False)
    #: Results of `_as_seen`.
    _seen: dict[ObjectKey, Settled] = attrs.field(factory=dict, init=False)

    async def run(self) -> None:
        """
        Execute the plan.

        A failure of a single object is recorded in `results`.

        :raises Superseded: another agentk leads and will read the inventory, or an
            operator gave an order in the meantime.
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
                # With the present uid: other clients may have deleted the earlier
                # object.
                applied = self._entries.get(key, InventoryEntry()).applied
                self._entries[key] = InventoryEntry(action.uid, applied=applied)
                # The inventory also tells what another agentk applied.
                if key not in self._settled and (known := Settled.read(applied)):
                    self._settled[key] = known
            elif action.claims:
                self._entries[key] = InventoryEntry(action.uid, claimed=action.claims)
        for key, action in plan.leaving.items():
            self._entries[key] = attrs.evolve(self._entries[key], held=action.held)
        if not all(self._is_settled(action) for action in plan.wanted.values()):
            # Reading a commit may have taken minutes.
            await self._checked(self._store.confirm())
        # Claim before the inventory has the commit: until then, the present owner of
        # these objects waits for this source, and then checks each object again.
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
        """Write `_entries` to the inventory if they differ from its content."""
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
        Stop if another agentk or an operator has written to the inventory.

        It may have been written hours ago, and there may be nothing to write now.
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
        """Annotate objects of other inventories as wanted by this one."""
        own = self._settings.inventory_id
        await in_parallel(
            partial(self._annotate, action, own)
            for action in self._plan.wanted.values()
            if action.claims and action.seen and action.seen.claimed_by != own
        )

    async def _annotate(self, action: Action, claimed_by: str | None) -> None:
        """
        Set or remove the claim on an object.

        A failure is ignored: the owner of the object waits for the annotation for some
        time, because the inventory has the claim, and the next pass tries again.
        """
        assert action.manifest is not None
        key, annotations = action.key, {CLAIMED_BY: claimed_by}
        patch = {"metadata": {"uid": action.uid, "annotations": annotations}}
        backoff = Backoff(lambda: 1.0, BUSY_FIRST, BUSY_MOST)
        for left in reversed(range(ANNOTATE_TIMES)):
            self._check_leads()
            try:
                resource = await self._client.resource(
                    action.manifest.api_version, key.kind
                )
                await self._client.patch(
                    resource,
                    key.name,
                    patch,
                    key.namespace,
                    field_manager=FIELD_MANAGER,
                )
                return
            except CallError as error:
                # Also a permission may come with the same commit, a moment later.
                denied = error.status is Status.PERMISSION_DENIED
                again = denied or error.status in (*UNDECIDED, Status.ABORTED)
                if not left or not again or (denied and self._may_not_annotate):
                    self._may_not_annotate = self._may_not_annotate or denied
                    return
            await deferLater(self._clock, backoff.failed())

    # Previous states of objects.

    async def _keep(
        self, why: Replaced, objects: Iterable[KubernetesObject | None]
    ) -> None:
        if self._kept is not None:
            self._check_leads()
            await self._kept.keep(why, (one for one in objects if one is not None))

    async def _keep_others(self, layer: Collection[ObjectKey]) -> None:
        """Keep the states of objects whose fields are about to be taken from others."""
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

    # Applying.

    def _as_seen(self, action: Action) -> Settled:
        """Return the `Settled` of an object that has not changed since it was seen."""
        found = self._seen.get(action.key)
        if found is None:
            assert action.manifest is not None
            owned = action.seen.owned if action.seen is not None else ""
            found = Settled(digest_of(action.manifest), owned)
            self._seen[action.key] = found
        return found

    def _is_settled(self, action: Action) -> bool:
        """Tell whether an object is as it was last applied."""
        if action.verb is not Verb.APPLY or action.takes:
            return False
        known = self._as_seen(action)
        # Without owned fields, as in some aggregated APIs, drift cannot be detected.
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
            # Other clients have changed or deleted it, and the drift was not examined
            # yet.
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
            # An adopted object's fields are taken over from their present managers.
            force = self._settings.force or action.verb is Verb.ADOPT
            applied = created or await self._applied_or_taken_back(action, force, same)
        except CallError as error:
            self._settled.pop(key, None)
            recreated = await self._recreate(action, error)
            if recreated is None:
                return
            applied = recreated
        claimed = action.seen is not None and action.seen.claimed_by
        if claimed == self._settings.inventory_id and not action.takes:
            await self._annotate(action, None)
        found = applied_version(applied["metadata"])
        known = self._settled[key] = Settled(digest, found.fields)
        self._note_applied(key, action.manifest, found.uid, known)
        self._applied_one(action.manifest, found)
        self._came_to(key, _outcome(action.seen, applied))

    async def _created(self, action: Action) -> KubernetesObject | None:
        """
        Create an object with a single request.

        :returns: the object; None if it exists, or if creating it takes two requests.
        """
        manifest = action.manifest
        if action.verb is not Verb.CREATE or manifest is None:
            return None
        try:
            return await self._applied(manifest, action.uid, False, is_new=True)
        except CallError as error:
            # Servers that check only this version, as some aggregated APIs may, get the
            # usual requests.
            if error.status is Status.ABORTED or "resourceVersion" in error.message:
                return None
            raise

    async def _applied_or_taken_back(
        self, action: Action, force: bool, same: bool
    ) -> KubernetesObject:
        """
        Apply an object, reverting drift if the settings say so, and return it.

        :param same: whether the same manifest was applied before, so that the changes
            of other clients are drift.
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
        """Record the result for the inventory, which the next agentk reads."""
        applied = self._entries[key].applied
        # A repair applies only some of the objects, and must not cause a write of the
        # inventory.
        if self._plan.whole:
            # A reader of the ConfigMap could guess the content of a Secret from its
            # digest.
            secret = (key.group, key.kind) == ("", "Secret")
            applied = "" if secret or not known.owned else known.text
        self._entries[key] = InventoryEntry(uid, applied=applied)

    async def _recreate(
        self, action: Action, refused: CallError
    ) -> KubernetesObject | None:
        """
        Recreate an object that cannot be changed.

        :returns: the object; None if it was not recreated, with the reason in
            `results`.
        """
        key, manifest = action.key, action.manifest
        assert manifest is not None
        why: str | None = words_of(key, refused)
        try:
            if action.verb is Verb.APPLY:
                wanted = marked(manifest, self._settings.inventory_id, "")
                found = await why_not_recreated(
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
        """
        Delete and create an object.

        :raises CallError: a prune guard protects it, or it could not be created again.
        """
        key = action.key
        resource = await self._client.resource(manifest.api_version, key.kind)
        live = await live_object(self._client, resource, key)
        if live is not None:
            if live["metadata"].get("uid", "") != action.uid:
                raise _held("another object of this name was created in the meantime")
            if owner_of(live) != self._settings.inventory_id:
                raise _held("it has another owner now")
            if stays := await self._guarded(live):
                raise _held(f"it must be recreated, but is kept: {stays}")
            if self._recreated_count >= self._settings.limits.count:
                most = self._settings.limits.count
                raise _held(f"{most} objects were recreated; retrying later")
            self._recreated_count += 1
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
        Restore an object that was deleted but could not be recreated.

        The old object is better than none, and better than another attempt each minute.

        :returns: the reason for the result.
        """
        self._check_leads()
        await self._client.apply(was, field_manager=FIELD_MANAGER)
        why = (
            "it was deleted, could not be recreated, and was restored: "
            f"{words_of(manifest.key, refused)}"
        )
        self._settled[manifest.key] = Settled(digest_of(manifest), "", why)
        return why

    async def _lost(self, key: ObjectKey) -> KubernetesObject | None:
        """Return an object that an interrupted agentk deleted without recreating it."""
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
        until, backoff = self._clock.seconds() + RECREATE_SECONDS, self._looks()
        while (found := await live_object(self._client, resource, key)) is not None:
            if found["metadata"].get("uid", "") != metadata.get("uid", ""):
                raise _held("another object of this name was created in the meantime")
            if self._clock.seconds() >= until:
                raise _held(
                    f"it was deleted to be recreated, but still exists after "
                    f"{RECREATE_SECONDS:g} s"
                )
            await deferLater(self._clock, backoff.failed())

    async def _took(self, action: Action) -> bool:
        """
        Mark an object without an inventory as ours, unless another agent was faster.

        If two agents marked it, each would believe that it owns the object, and the
        agent whose commit does not contain it would delete it.
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
            mark = {OWNER: own, CLAIMED_BY: None, GIVEN_BY: None}
            try:
                await self._annotate_unchanged(key, live, resource, mark)
            except CallError as error:
                # Another client changed the object in the meantime.
                if error.status is not Status.ABORTED:
                    raise
            else:
                return True
        return False

    async def _take_over(self, action: Action) -> None:
        """Take over the fields that other tools applied from files."""
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
        Return why an object that was not ours must not be written; empty if it may.

        The plan may be hours old.
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
        return "another object of this name was created in the meantime; retrying"

    async def _applied(
        self, manifest: Manifest, uid: str, force: bool, is_new: bool = False
    ) -> KubernetesObject:
        """
        Apply a manifest, with retries while the API server is overloaded.

        :param is_new: fail with ABORTED if an object of this name exists.
        """
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
                # The source itself defines the kind.
                missing = error.status is Status.NOT_FOUND and bool(
                    self._plan.order.needs[manifest.key]
                )
                if not busy and not (missing and self._clock.seconds() < until):
                    raise
            await deferLater(self._clock, backoff.failed())

    @staticmethod
    def _looks() -> Backoff:
        """Return the backoff between checks of an object that is waited for."""
        return Backoff(lambda: 1.0, LOOK_FIRST, LOOK_MOST)

    async def _wait_for(self, keys: Collection[ObjectKey]) -> None:
        """
        Wait until the objects are current; objects that do not become current fail.
        """
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

    # Leaving and pruning.

    async def _leave(self, key: ObjectKey, action: Action, failed: bool) -> None:
        """Handle an object that leaves Git without being deleted."""
        if action.verb is Verb.FORGET:
            if why := await self._drop_claim(key, action):
                self._came_to(key, Outcome.BLOCKED, why)
                return
            self._entries.pop(key, None)
            self._came_to(key, Outcome.FORGOTTEN, action.reason)
        elif action.verb is Verb.BLOCK:
            self._came_to(key, Outcome.BLOCKED, action.reason)
        elif action.verb is Verb.DETACH:
            await self._detach(key, action)
        elif failed:
            self._came_to(key, Outcome.BLOCKED, NOT_WHILE_FAILING)

    async def _drop_claim(self, key: ObjectKey, action: Action) -> str:
        """
        Remove our claim from an object of another inventory that left Git here.

        The other one may be about to release the object for us: it reads the claim when
        it makes its plan, and may wait for minutes after that.  Whichever of the two
        writes later fails, because both name the object's version.

        :returns: why the object cannot be forgotten now; empty if it can.
        """
        live, own = action.live, self._settings.inventory_id
        if live is None or not owner_of(live) or claimed_by(live) != own:
            return ""
        try:
            resource = await self._resource_of(live)
            await self._annotate_unchanged(key, live, resource, {CLAIMED_BY: None})
        except CallError as error:
            if error.status in (*UNDECIDED, Status.ABORTED):
                return words_of(key, error)
        return ""

    async def _detach(self, key: ObjectKey, action: Action) -> None:
        """Remove our annotations; everything else stays."""
        assert action.live is not None
        given_by = self._settings.inventory_id if action.gives else None
        ours = {OWNER: None, GIVEN_BY: given_by}
        try:
            resource = await self._resource_of(action.live)
            await self._annotate_unchanged(key, action.live, resource, ours)
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                self._came_to(key, Outcome.FAILED, error.message)
                return
        self._entries.pop(key, None)
        self._came_to(key, Outcome.DETACHED, action.reason)

    async def _annotate_unchanged(
        self,
        key: ObjectKey,
        live: KubernetesObject,
        resource: KubernetesResource,
        annotations: Mapping[str, str | None],
    ) -> None:
        """
        Change annotations of an object that is still as it was read; None removes one.

        :raises CallError: ABORTED if another client changed the object since then.
        """
        self._check_leads()
        names = ("uid", "resourceVersion")
        metadata = {name: live["metadata"].get(name, "") for name in names}
        patch = {"metadata": {**metadata, "annotations": annotations}}
        await self._client.patch(
            resource, key.name, patch, key.namespace, field_manager=FIELD_MANAGER
        )

    async def _resource_of(self, live: KubernetesObject) -> KubernetesResource:
        return await self._client.resource(live["apiVersion"], live["kind"])

    async def _prune(self, key: ObjectKey) -> None:
        action = self._plan.leaving[key]
        assert action.live is not None
        for other in self._needed_by.get(key, ()):
            # For example an operator, without which its custom resources could never be
            # deleted.
            if self.results[other].outcome is not Outcome.PRUNED:
                self._came_to(key, Outcome.BLOCKED, f"it is needed by {other}")
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
        Delete the object if it is unchanged since the plan was made.

        :returns: whether the result is final; False if the object changed between the
            check and the delete.
        """
        live = await live_object(self._client, resource, key)
        if live is None or live["metadata"].get("uid", "") != action.uid:
            self._came_to(key, Outcome.PRUNED)
            return True
        own, claimed = self._settings.inventory_id, self._entries[key].claimed
        if owner_of(live) != own and not was_given(live, claimed, own):
            self._entries.pop(key, None)
            self._came_to(key, Outcome.FORGOTTEN, "it has another owner now")
            return True
        if stays := await self._guarded(live) or self._stays(key):
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

    async def _guarded(self, live: KubernetesObject) -> str:
        """Return why an object must not be deleted now; empty if it may."""
        owner = self._settings.inventory_id
        return is_kept(live) or await guard_of_object(
            self._client, live, owner, self._goes
        )

    def _goes(self, key: ObjectKey) -> bool:
        """Tell whether the plan deletes an object by itself, or has deleted it."""
        action, result = self._plan.leaving.get(key), self.results.get(key)
        return (
            action is not None
            and action.verb is Verb.PRUNE
            and (result is None or result.outcome is Outcome.PRUNED)
        )

    async def _wait_until_gone(self, keys: Collection[ObjectKey]) -> None:
        """Wait for deletes; remove deleted objects from the inventory."""
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
        """Return why an object still exists; empty if it is gone."""
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
    Return the object to send to the API server.

    :param uid: the object to change, so that another object of this name is not
        overwritten; empty if any object may be changed or created.
    """
    annotations = {**manifest.annotations, OWNER: inventory_id}
    metadata = {**manifest.object["metadata"], "annotations": annotations}
    if uid:
        metadata["uid"] = uid
    return {**_with_data(manifest.object), "metadata": metadata}


def _with_data(found: dict[str, Any]) -> dict[str, Any]:
    """
    Move the ``stringData`` of a Secret to ``data``, as the API server would store it.

    The API server does not record field managers for ``stringData``: changes by other
    clients would be unseen, and keys that left Git would stay.
    """
    texts = found.get("stringData")
    data = found.get("data") or {}
    if (found.get("apiVersion"), found.get("kind")) != ("v1", "Secret"):
        return found
    if not isinstance(texts, dict) or not isinstance(data, dict):
        return found
    if not all(isinstance(one, str) for one in texts.values()):
        # Let the API server report the mistake.
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
