"""Part of an execution that prunes or releases objects that were removed from Git."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from modules.gitops.agent.apply.backups import Replaced
from modules.gitops.agent.apply.execution import BUSY_TIMES, Execution, looks
from modules.gitops.agent.apply.ledger import Ledger
from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.apply.ownership_marks import OwnershipMarks
from modules.gitops.agent.apply.recheck import why_kept
from modules.gitops.agent.apply.refusal import words_of
from modules.gitops.agent.objects.error_statuses import UNDECIDED
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import (
    claimed_by,
    owner_of,
    was_given,
)
from modules.gitops.agent.plan.plan import Action, Verb
from modules.gitops.agent.plan.recreate import restorable
from tunnel.api import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.kubernetes import why_it_stays
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.time_limit import shielded

__all__ = [
    "ALWAYS_CHANGED",
    "ANSWER_SECONDS",
    "CLAIMED_MEANWHILE",
    "NOT_WHILE_FAILING",
    "Pruner",
    "Pruning",
]

#: Maximum seconds that an interrupted execution waits for the response to a delete: the
#: API server may have deleted the object, and the audit log must name it.
ANSWER_SECONDS = 10.0

#: Reason why an object is not pruned if it was annotated after the plan was made: the
#: next pass checks whether another inventory claims it.
CLAIMED_MEANWHILE = "another agent may have claimed it in the meantime; retrying"

#: Reason why an object is not pruned that other clients change before each delete.
ALWAYS_CHANGED = (
    "it is not pruned, because another client changes it again and again; managedFields"
    " of the object name the client"
)

#: Reason why an object is not pruned although the plan prunes it.
NOT_WHILE_FAILING = "nothing is pruned while an object cannot be applied"


@attrs.define(eq=False)
class Pruning:
    """
    Progress of the deletes of a commit.

    :ivar total: the number of objects to delete.
    :ivar approved: whether an operator approved some of the deletes.
    :ivar gone: the number of objects that no longer exist.
    :ivar stays: the deleted objects that still exist, each with the reason.
    """

    total: int
    approved: bool
    gone: int = 0
    stays: Mapping[ObjectKey, str] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Pruner:
    """
    Part of an execution that handles objects that were removed from Git.

    :param stays: as for `Act`; *prunes* and *pruned* also.
    """

    _execution: Execution
    _marks: OwnershipMarks
    _stays: Callable[[ObjectKey], str]
    _prunes: Callable[[Pruning], None]
    _pruned: Callable[[ObjectKey, str], None]
    _ledger: Ledger = attrs.field(init=False)
    _progress: Pruning = attrs.field(init=False)
    #: For each removed object, the other removed objects that need it.
    _needed_by: dict[ObjectKey, list[ObjectKey]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        plan = self._execution.plan
        self._ledger = self._execution.ledger
        for other, needs in plan.leaving_order.needs.items():
            for key in needs:
                self._needed_by.setdefault(key, []).append(other)
        pruned = self._to_prune()
        approval = plan.inventory.approval
        approved = any(approval.covers(plan.commit, one.key, one.uid) for one in pruned)
        self._progress = Pruning(len(pruned), approved)

    def _to_prune(self) -> list[Action]:
        leaving = self._execution.plan.leaving.values()
        return [one for one in leaving if one.verb is Verb.PRUNE]

    def register(self) -> None:
        """Update the inventory's entries of the objects that were removed from Git."""
        entries = self._ledger.entries
        for key, action in self._execution.plan.leaving.items():
            entries[key] = attrs.evolve(entries[key], held=action.held, leaves=True)

    async def release_all(self, failed: bool) -> None:
        """
        Handle the removed objects that are not deleted.

        :param failed: whether an object of the commit could not be applied, so that no
            object is pruned.
        :raises Superseded: if another agentk leads.
        """
        for key, action in self._execution.plan.leaving.items():
            await self._leave(key, action, failed)

    async def prune_all(self) -> None:
        """
        Delete the objects that the plan prunes, and wait until they are gone.

        :raises Superseded: if another agentk leads, or an operator gave an order.
        :raises CallError: if the states of the objects cannot be stored.
        """
        pruned = self._to_prune()
        if pruned:
            await self._ledger.renew()
            self._prunes(self._progress)
        await self._execution.keep(Replaced.PRUNED, (one.live for one in pruned))
        for layer in reversed(self._execution.plan.leaving_order.layers):
            await in_parallel(partial(self._prune, key) for key in layer)
            await self._wait_until_gone(layer)

    async def _leave(self, key: ObjectKey, action: Action, failed: bool) -> None:
        """Handle a removed object that is not deleted."""
        if action.verb is Verb.FORGET:
            if why := await self._marks.drop_claim(key, action):
                self._ledger.note(key, Outcome.BLOCKED, why)
                return
            self._ledger.entries.pop(key, None)
            self._ledger.note(key, Outcome.FORGOTTEN, action.reason)
        elif action.verb is Verb.BLOCK:
            self._ledger.note(key, Outcome.BLOCKED, action.reason)
        elif action.verb is Verb.DETACH:
            await self._marks.detach(key, action)
        elif failed:
            self._ledger.note(key, Outcome.BLOCKED, NOT_WHILE_FAILING)

    async def _prune(self, key: ObjectKey) -> None:
        action = self._execution.plan.leaving[key]
        assert action.live is not None
        for other in self._needed_by.get(key, ()):
            # One of these objects may be an operator (controller): without it, its
            # custom resources could never be deleted.
            if self._ledger.results[other].outcome is not Outcome.PRUNED:
                self._ledger.note(key, Outcome.BLOCKED, f"it is needed by {other}")
                return
        try:
            resource = await self._execution.resource_of(action.live)
            # An object that other clients change all the time must not hold up the
            # pass, which also repairs the drift of other objects.
            backoff = looks()
            for _ in range(BUSY_TIMES):
                if await self._deleted(key, action, resource):
                    return
                await deferLater(self._execution.clock, backoff.failed())
        except CallError as error:
            self._ledger.note(key, Outcome.FAILED, words_of(key, error))
        else:
            self._ledger.note(key, Outcome.FAILED, ALWAYS_CHANGED)

    async def _deleted(
        self, key: ObjectKey, action: Action, resource: KubernetesResource
    ) -> bool:
        """
        Delete an object if it is unchanged since the plan was made.

        :returns: whether the result is final; False if the object changed between the
            check and the delete.
        """
        live = await live_object(self._execution.client, resource, key)
        if live is None or live["metadata"].get("uid", "") != action.uid:
            self._ledger.note(key, Outcome.PRUNED)
            return True
        own, entry = self._execution.inventory_id, self._ledger.entries[key]
        if owner_of(live) != own and not was_given(live, entry.claimed, entry.uid, own):
            self._ledger.entries.pop(key, None)
            self._ledger.note(key, Outcome.FORGOTTEN, "it has another owner now")
            return True
        if stays := await why_kept(self._execution, live) or self._stays(key):
            self._ledger.note(key, Outcome.BLOCKED, stays)
            return True
        assert action.live is not None
        if claimed_by(live) not in ("", claimed_by(action.live)):
            self._ledger.note(key, Outcome.BLOCKED, CLAIMED_MEANWHILE)
            return True
        if restorable(live) != restorable(action.live):
            # Other clients may have changed the object for as long as the objects that
            # need it were being deleted.
            await self._execution.keep(Replaced.PRUNED, [live])
        await self._ledger.check()
        self._ledger.check_leads()
        clock = self._execution.clock
        deleting = Deferred.fromCoroutine(self._delete(key, live, resource))
        try:
            await shielded(deleting, ANSWER_SECONDS, clock)
        except CallError as error:
            if error.status is Status.ABORTED:
                return False
            raise
        self._ledger.note(key, Outcome.PRUNED)
        return True

    async def _delete(
        self, key: ObjectKey, live: KubernetesObject, resource: KubernetesResource
    ) -> None:
        """
        Delete an object and report this.

        :param live: the object as it was read.
        :raises CallError: ABORTED if the object has changed since; as
            `IKubernetesClient.delete`.
        """
        client, metadata = self._execution.client, live["metadata"]
        uid = metadata.get("uid", "")
        try:
            await client.delete(
                resource,
                key.name,
                key.namespace,
                uid=uid,
                resource_version=metadata.get("resourceVersion", ""),
                propagation=self._execution.settings.propagation,
            )
        except CallError as error:
            if error.status not in UNDECIDED:
                raise
            # The API server may have deleted the object, and only the response is lost.
            if await _is_unchanged(client, resource, key, live):
                raise
        self._pruned(key, uid)

    async def _wait_until_gone(self, keys: Collection[ObjectKey]) -> None:
        """Wait until deleted objects are gone, and remove them from the inventory."""
        results = self._ledger.results
        waiting = {key for key in keys if results[key].outcome is Outcome.PRUNED}
        timeout = self._execution.settings.prune_timeout
        if not timeout:
            return
        clock = self._execution.clock
        until, backoff = clock.seconds() + timeout, looks()
        while waiting:
            reasons: Mapping[ObjectKey, str] = {
                key: why
                for key in sorted(waiting)
                if (why := await self._not_gone(key))
            }
            for key in waiting - reasons.keys():
                self._ledger.entries.pop(key, None)
                self._progress.gone += 1
            self._progress.stays = reasons
            waiting &= reasons.keys()
            if waiting and clock.seconds() >= until:
                for key in waiting:
                    why = f"not gone in {timeout:g} s: {reasons[key]}"
                    self._ledger.note(key, Outcome.FAILED, why)
                return
            if waiting:
                await deferLater(clock, backoff.failed())

    async def _not_gone(self, key: ObjectKey) -> str:
        """Return why an object still exists; empty if it is gone."""
        action = self._execution.plan.leaving[key]
        assert action.live is not None
        try:
            resource = await self._execution.resource_of(action.live)
            live = await live_object(self._execution.client, resource, key)
        except CallError as error:
            return "" if error.status is Status.NOT_FOUND else error.message
        if live is None or live["metadata"].get("uid", "") != action.uid:
            return ""
        return why_it_stays(live, self._execution.now())


async def _is_unchanged(
    client: IKubernetesClient,
    resource: KubernetesResource,
    key: ObjectKey,
    before: KubernetesObject,
) -> bool:
    """Return whether an object still exists and its deletion has not begun."""
    now = await live_object(client, resource, key)
    if now is None:
        return False
    was, metadata = before["metadata"], now["metadata"]
    begins = "deletionTimestamp" in metadata and "deletionTimestamp" not in was
    return was.get("uid") == metadata.get("uid") and not begins
