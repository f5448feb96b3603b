"""Recreation of objects that cannot be changed."""

from __future__ import annotations

import attrs
from twisted.internet.task import deferLater

from modules.gitops.agent.apply.backups import Replaced
from modules.gitops.agent.apply.execution import Execution, looks
from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.apply.recheck import why_kept
from modules.gitops.agent.apply.refusal import words_of
from modules.gitops.agent.apply.server_side_apply import apply_manifest, marked
from modules.gitops.agent.apply.settled import Settled, digest_of
from modules.gitops.agent.inventory.inventory import InventoryEntry
from modules.gitops.agent.objects.error_statuses import UNDECIDED
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import Manifest, ObjectKey
from modules.gitops.agent.objects.owner_annotations import OWNER, owner_of
from modules.gitops.agent.plan.conflicts import since_when
from modules.gitops.agent.plan.plan import Action, Verb
from modules.gitops.agent.plan.recreate import restorable, why_not_recreated
from tunnel.api import KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["Recreator"]

#: Maximum seconds to wait until an object that is recreated has been deleted: its pods
#: may take that long to end.
RECREATE_SECONDS = 120.0


@attrs.define(eq=False)
class Recreator:
    """
    Part of an execution that deletes and creates again objects that cannot be changed.

    :param settled: see `Applier`.
    """

    _execution: Execution
    _settled: dict[ObjectKey, Settled]
    #: Number of recreated objects.
    _recreated_count: int = attrs.field(default=0, init=False)

    async def recreate(
        self, action: Action, refused: CallError
    ) -> KubernetesObject | None:
        """
        Recreate an object that cannot be changed.

        :returns: the new object; None if the object was not recreated: `Ledger.results`
            contains the reason.
        """
        key, manifest = action.key, action.manifest
        assert manifest is not None
        why: str | None = words_of(key, refused)
        try:
            if action.verb is Verb.APPLY:
                wanted = marked(manifest, self._execution.inventory_id, "")
                found = await why_not_recreated(
                    self._execution.client, manifest, wanted, refused, FIELD_MANAGER
                )
                if found == "":
                    return await self._recreated(action, manifest)
                why = f"{why}: {found}" if found else why
            elif action.verb is Verb.CREATE and refused.status not in UNDECIDED:
                if (was := await self._lost(key)) is not None:
                    why = await self._restore(manifest, was, refused)
            since = await since_when(self._execution.client, manifest, refused)
            why = f"{why or ''}{since}"
        except CallError as error:
            why = words_of(key, error)
        self._execution.ledger.note(key, Outcome.FAILED, why or "")
        return None

    async def _recreated(self, action: Action, manifest: Manifest) -> KubernetesObject:
        """
        Delete an object and create it again.

        :raises CallError: if a prune guard protects the object, or the object could not
            be created again.
        """
        key = action.key
        resource = await self._execution.resource_of(manifest)
        live = await live_object(self._execution.client, resource, key)
        if live is not None:
            if live["metadata"].get("uid", "") != action.uid:
                raise _held("another object of this name was created in the meantime")
            if owner_of(live) != self._execution.inventory_id:
                raise _held("it has another owner now")
            if stays := await why_kept(self._execution, live):
                raise _held(f"it must be recreated, but is kept: {stays}")
            if self._recreated_count >= self._execution.settings.limits.count:
                most = self._execution.settings.limits.count
                raise _held(f"{most} objects were recreated; retrying later")
            self._recreated_count += 1
            await self._execution.keep(Replaced.RECREATED, [live])
            await self._delete_and_wait(key, resource, live)
        try:
            force = self._execution.settings.force
            return await apply_manifest(self._execution, manifest, "", force)
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

        Restoring the old object is better than leaving no object, and better than
        trying to recreate it each minute.

        :returns: the reason for the result.
        """
        self._execution.ledger.check_leads()
        client, entries = self._execution.client, self._execution.ledger.entries
        restored = await client.apply(was, field_manager=FIELD_MANAGER)
        uid = restored["metadata"].get("uid", "")
        entries[manifest.key] = InventoryEntry(uid)
        why = (
            "it was deleted, could not be recreated, and was restored: "
            f"{words_of(manifest.key, refused)}"
        )
        self._settled[manifest.key] = Settled(digest_of(manifest), "", why)
        return why

    async def _lost(self, key: ObjectKey) -> KubernetesObject | None:
        """Return an object that an interrupted agentk deleted without recreating it."""
        entry = self._execution.plan.inventory.entries.get(key)
        if entry is None or not entry.is_signed or self._execution.kept is None:
            return None
        found = await self._execution.kept.replaced(key, entry.uid)
        if found is None:
            return None
        metadata = found["metadata"]
        annotations = {
            **(metadata.get("annotations") or {}),
            OWNER: self._execution.inventory_id,
        }
        return {**found, "metadata": {**metadata, "annotations": annotations}}

    async def _delete_and_wait(
        self, key: ObjectKey, resource: KubernetesResource, live: KubernetesObject
    ) -> None:
        metadata = live["metadata"]
        self._execution.ledger.check_leads()
        await self._execution.client.delete(
            resource,
            key.name,
            key.namespace,
            uid=metadata.get("uid", ""),
            resource_version=metadata.get("resourceVersion", ""),
        )
        client, clock = self._execution.client, self._execution.clock
        until, backoff = clock.seconds() + RECREATE_SECONDS, looks()
        while (found := await live_object(client, resource, key)) is not None:
            if found["metadata"].get("uid", "") != metadata.get("uid", ""):
                raise _held("another object of this name was created in the meantime")
            if clock.seconds() >= until:
                raise _held(
                    f"it was deleted to be recreated, but still exists after "
                    f"{RECREATE_SECONDS:g} s"
                )
            await self._execution.ledger.save()
            await deferLater(clock, backoff.failed())


def _held(why: str) -> CallError:
    return CallError(Status.FAILED_PRECONDITION, why)
