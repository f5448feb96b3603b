"""Part of an execution that applies the objects of a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import attrs

from modules.gitops.agent.apply.backups import Replaced
from modules.gitops.agent.apply.execution import Execution
from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.apply.ownership_marks import OwnershipMarks
from modules.gitops.agent.apply.recreation import Recreator
from modules.gitops.agent.apply.server_side_apply import apply_manifest
from modules.gitops.agent.apply.settled import Settled, digest_of
from modules.gitops.agent.inventory.inventory import InventoryEntry
from modules.gitops.agent.inventory.listing import Seen
from modules.gitops.agent.objects.differences import AppliedVersion, applied_version
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER, taken_over
from modules.gitops.agent.objects.live import live_object, patch_unchanged
from modules.gitops.agent.objects.manifests import Manifest, ObjectKey
from modules.gitops.agent.objects.owner_annotations import owner_of
from modules.gitops.agent.plan.plan import Action, Verb
from tunnel.api import KubernetesObject
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel

__all__ = ["TAKEN_MEANWHILE", "Applier"]

#: Reason why an object that had no owner could not be taken over.
TAKEN_MEANWHILE = "another agent took it in the meantime; retrying"


@attrs.define(eq=False)
class Applier:
    """
    Part of an execution that applies objects.

    :param settled: as for `Act`; *applied* also.
    """

    _execution: Execution
    _marks: OwnershipMarks
    _settled: dict[ObjectKey, Settled]
    _on_applied: Callable[[Manifest, AppliedVersion], None]
    _recreator: Recreator = attrs.field(init=False)
    #: Results of `_as_seen`.
    _seen: dict[ObjectKey, Settled] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._recreator = Recreator(self._execution, self._settled)

    def register(self) -> None:
        """Add the objects of the plan to the inventory's entries."""
        entries = self._execution.ledger.entries
        for key, action in self._execution.plan.wanted.items():
            if action.verb is not Verb.REFUSE:
                # Use the current uid: other clients may have deleted the earlier
                # object.
                known = entries.get(key, InventoryEntry())
                applied = known.applied
                entries[key] = InventoryEntry(
                    action.uid, applied=applied, claimed=_claimed(action, known)
                )
                # The inventory also contains the results of other agentk.
                if key not in self._settled and (settled := Settled.read(applied)):
                    self._settled[key] = settled
            elif action.claims:
                entries[key] = InventoryEntry(action.uid, claimed=action.claims)
            elif key in entries:
                entries[key] = attrs.evolve(entries[key], leaves=False)

    @property
    def changes_nothing(self) -> bool:
        """Whether every object is as it was last applied."""
        return all(map(self._is_settled, self._execution.plan.wanted.values()))

    def forget_others(self) -> None:
        """Forget objects that are not in the plan."""
        wanted = self._execution.plan.wanted
        for key in [key for key in self._settled if key not in wanted]:
            del self._settled[key]

    async def apply_all(self, layer: Collection[ObjectKey]) -> None:
        """
        Apply the objects of one layer of the plan's order.

        :raises Superseded: if another agentk leads.
        :raises CallError: if the previous states of objects cannot be kept.
        """
        await self._keep_others(layer)
        await in_parallel(partial(self._apply, key) for key in layer)

    async def _keep_others(self, layer: Collection[ObjectKey]) -> None:
        """
        Keep the states of objects whose fields the plan takes from other managers.
        """
        if self._execution.kept is None:
            return
        repairs = self._execution.settings.repairs
        verb = Verb.APPLY if repairs else Verb.ADOPT
        why = Replaced.REPAIRED if repairs else Replaced.ADOPTED
        wanted = (self._execution.plan.wanted[key] for key in layer)
        taken = [
            one.manifest
            for one in wanted
            if one.verb is verb and one.manifest is not None
        ]
        if taken:
            live = await in_parallel(
                partial(self._execution.live, one) for one in taken
            )
            await self._execution.keep(why, live)

    def _as_seen(self, action: Action) -> Settled:
        """
        Return the digest of an action's manifest, with agentk's fields of the live
        object.
        """
        found = self._seen.get(action.key)
        if found is None:
            assert action.manifest is not None
            owned = action.seen.owned if action.seen is not None else ""
            found = Settled(digest_of(action.manifest), owned)
            self._seen[action.key] = found
        return found

    def _is_settled(self, action: Action) -> bool:
        """Return whether an object is as it was last applied."""
        if action.verb is not Verb.APPLY or action.takes:
            return False
        known = self._as_seen(action)
        # Without owned fields, as in some aggregated APIs, drift cannot be detected.
        return bool(known.owned) and self._settled.get(action.key) == known

    async def _apply(self, key: ObjectKey) -> None:
        action = self._execution.plan.wanted[key]
        if (known_result := self._without_request(action)) is not None:
            self._execution.ledger.note(key, *known_result)
            return
        manifest = action.manifest
        assert manifest is not None
        known = self._as_seen(action)
        same = self._was_applied(action)
        try:
            created = await self._created(action)
            if created is None and action.verb in (Verb.CREATE, Verb.ADOPT):
                if why := await self._changed(action):
                    self._execution.ledger.note(key, Outcome.FAILED, why)
                    return
            if action.takes and not await self._marks.take(action):
                self._execution.ledger.note(key, Outcome.FAILED, TAKEN_MEANWHILE)
                return
            if action.verb is Verb.ADOPT:
                await self._take_over(action)
            # An adopted object's fields are taken over from their current managers.
            force = self._execution.settings.force or action.verb is Verb.ADOPT
            applied = created or await self._applied_or_taken_back(action, force, same)
        except CallError as error:
            self._settled.pop(key, None)
            recreated = await self._recreator.recreate(action, error)
            if recreated is None:
                return
            applied = recreated
        claimed_by = action.seen.claimed_by if action.seen is not None else ""
        if claimed_by == self._execution.inventory_id and not action.takes:
            await self._marks.drop_claim_of(action)
        found = applied_version(applied["metadata"])
        settled = self._settled[key] = Settled(known.digest, found.fields)
        self._note_applied(key, found.uid, settled)
        self._on_applied(manifest, found)
        self._execution.ledger.note(key, _outcome(action.seen, applied))

    def _without_request(self, action: Action) -> tuple[Outcome, str] | None:
        """
        Return the outcome of an object that needs no request; None if it must be
        applied.
        """
        key, results = action.key, self._execution.ledger.results
        if action.verb is Verb.REFUSE:
            return Outcome.FAILED, action.reason
        if action.verb is Verb.LEAVE:
            return Outcome.LEFT, ""
        for needed in sorted(self._execution.plan.order.needs[key]):
            outcome = results[needed].outcome
            if outcome in (Outcome.FAILED, Outcome.SKIPPED):
                return Outcome.SKIPPED, f"it needs {needed}, which {outcome.value}"
        known = self._as_seen(action)
        if action.seen is not None and self._is_settled(action):
            self._note_applied(key, action.seen.uid, known)
            return Outcome.UNCHANGED, ""
        before = self._settled.get(key)
        if before is not None and before.problem and before.digest == known.digest:
            return Outcome.FAILED, before.problem
        ours = action.verb in (Verb.APPLY, Verb.CREATE)
        if ours and self._was_applied(action) and self._execution.settings.only_reports:
            # Other clients have changed or deleted the object, and the drift was not
            # examined yet.
            return Outcome.LEFT, ""
        return None

    def _was_applied(self, action: Action) -> bool:
        """Return whether the same manifest was applied before."""
        before = self._settled.get(action.key)
        return before is not None and before.digest == self._as_seen(action).digest

    async def _created(self, action: Action) -> KubernetesObject | None:
        """
        Create an object with a single request.

        :returns: the object; None if it exists, or if creating it takes two requests.
        """
        manifest = action.manifest
        if action.verb is not Verb.CREATE or manifest is None:
            return None
        try:
            return await apply_manifest(
                self._execution, manifest, action.uid, False, is_new=True
            )
        except CallError as error:
            # Servers that check only the version, as some aggregated APIs may, get the
            # usual requests.
            if error.status is Status.ABORTED or "resourceVersion" in error.message:
                return None
            raise

    async def _applied_or_taken_back(
        self, action: Action, force: bool, same: bool
    ) -> KubernetesObject:
        """
        Apply an object, reverting drift if the settings require it, and return the
        object.

        :param same: whether the same manifest was applied before, so that the changes
            of other clients are drift.
        """
        manifest = action.manifest
        assert manifest is not None
        try:
            return await apply_manifest(self._execution, manifest, action.uid, force)
        except CallError as error:
            drift = same and self._execution.settings.takes_back
            if error.status is not Status.ABORTED or not drift:
                raise
        live = await self._execution.live(manifest)
        await self._execution.keep(Replaced.REPAIRED, [live])
        return await apply_manifest(self._execution, manifest, action.uid, True)

    def _note_applied(self, key: ObjectKey, uid: str, known: Settled) -> None:
        """Record the result for the inventory, which the next agentk reads."""
        applied = self._execution.ledger.entries[key].applied
        # A repair applies only some of the objects, and must not cause a write of the
        # inventory.
        if self._execution.plan.whole:
            # A reader of the ConfigMap could guess the content of a Secret from its
            # digest.
            secret = (key.group, key.kind) == ("", "Secret")
            applied = "" if secret or not known.owned else known.text
        self._execution.ledger.entries[key] = InventoryEntry(uid, applied=applied)

    async def _take_over(self, action: Action) -> None:
        """Take over the fields that other tools applied from files."""
        assert action.manifest is not None
        resource = await self._execution.resource_of(action.manifest)
        live = await live_object(self._execution.client, resource, action.key)
        fields = None if live is None else taken_over(live["metadata"], FIELD_MANAGER)
        if live is None or fields is None:
            return
        self._execution.ledger.check_leads()
        client, change = self._execution.client, {"managedFields": fields}
        await patch_unchanged(client, resource, live, change)

    async def _changed(self, action: Action) -> str:
        """
        Return why an object without this project as its owner must not be written;
        empty if it may be.

        The plan may be hours old.
        """
        assert action.manifest is not None
        try:
            resource = await self._execution.resource_of(action.manifest)
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            return ""
        live = await live_object(self._execution.client, resource, action.key)
        if live is None or owner_of(live) == self._execution.inventory_id:
            return ""
        if live["metadata"].get("uid", "") == action.uid:
            return ""
        return "another object of this name was created in the meantime; retrying"


def _claimed(action: Action, known: InventoryEntry) -> str:
    """
    Return the inventory to record as `InventoryEntry.claimed` while this project takes
    over an object; empty if the project does not take it over.

    The record is needed if Git drops the object before the end of the takeover.
    """
    if not action.takes or action.seen is None:
        return ""
    return known.claimed or action.claims or action.seen.claimed_by


def _outcome(seen: Seen | None, applied: KubernetesObject) -> Outcome:
    if seen is None:
        return Outcome.CREATED
    metadata = applied["metadata"]
    if seen.uid != metadata.get("uid", ""):
        return Outcome.RECREATED
    same = seen.version == metadata.get("resourceVersion", "")
    return Outcome.UNCHANGED if same else Outcome.CHANGED
