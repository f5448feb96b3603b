"""Annotations that mark an object as owned, claimed or given by an inventory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.task import deferLater

from modules.gitops.agent.apply.execution import (
    BUSY_FIRST,
    BUSY_MOST,
    BUSY_TIMES,
    Execution,
)
from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.apply.refusal import words_of
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.ownership import FIELD_MANAGER
from modules.gitops.agent.objects.prune_guards import (
    CLAIMED_BY,
    GIVEN_BY,
    OWNER,
    UNDECIDED,
    claimed_by,
    owner_of,
)
from modules.gitops.agent.plan.plan import Action
from tunnel.api import KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.parallel import in_parallel

__all__ = ["ANNOTATE_TIMES", "MARK_SECONDS", "OwnershipMarks"]

#: Maximum number of attempts to claim an object, with the backoff for overloaded API
#: servers.
ANNOTATE_TIMES = 4

#: Maximum seconds for all claims and takes before the first object is applied: a
#: webhook may be silent for 30 seconds each time, for one object.
MARK_SECONDS = 5.0


@attrs.define(eq=False)
class OwnershipMarks:
    """Marks of ownership that one execution sets and removes."""

    _execution: Execution
    #: Whether an attempt to claim an object was denied even in its last repetition.
    _may_not_annotate: bool = attrs.field(default=False, init=False)
    #: Objects that `take` has taken.
    _taken: set[ObjectKey] = attrs.field(factory=set, init=False)

    async def mark_all(self) -> None:
        """
        Take the objects that change their owner, and claim those that another inventory
        has to release.

        The next pass repeats claims that fail or are late; applying the object repeats
        takes. Until then, the entry in the inventory makes the other agent wait.

        :raises Superseded: if another agentk leads.
        """
        own = self._execution.inventory_id
        wanted = self._execution.plan.wanted.values()
        takes = [partial(self._take_early, one) for one in wanted if one.takes]
        claims = [
            partial(self._annotate, one, {CLAIMED_BY: own})
            for one in wanted
            if one.claims and not one.takes and one.seen and one.seen.claimed_by != own
        ]
        marking = Deferred.fromCoroutine(in_parallel((*takes, *claims)))
        marking.addTimeout(MARK_SECONDS, self._execution.clock)
        try:
            await marking
        except TimeoutError:
            # One object with a silent webhook must not delay all others.
            return

    async def _take_early(self, action: Action) -> None:
        """
        Take an object before the inventory has the commit.

        The former owner relies on an inventory with this commit, and the object may be
        applied much later.
        """
        try:
            await self.take(action)
        except CallError:
            # Applying the object repeats the attempt, and reports the failure.
            return

    async def drop_claim_of(self, action: Action) -> None:
        """Remove this inventory's claim from an object that it now owns."""
        await self._annotate(action, {CLAIMED_BY: None})

    async def _annotate(
        self, action: Action, annotations: Mapping[str, str | None]
    ) -> None:
        """
        Change annotations of an object, regardless of its version; None removes an
        annotation.

        A failure is ignored: the owner of the object waits for the annotation for some
        time, because the inventory has the claim, and the next pass tries again.
        """
        assert action.manifest is not None
        key = action.key
        patch = {"metadata": {"uid": action.uid, "annotations": annotations}}
        backoff = Backoff(lambda: 1.0, BUSY_FIRST, BUSY_MOST)
        for left in reversed(range(ANNOTATE_TIMES)):
            self._execution.ledger.check_leads()
            try:
                resource = await self._execution.resource_of(action.manifest)
                await self._execution.client.patch(
                    resource,
                    key.name,
                    patch,
                    key.namespace,
                    field_manager=FIELD_MANAGER,
                )
                return
            except CallError as error:
                # A permission may come with the same commit, a moment later.
                denied = error.status is Status.PERMISSION_DENIED
                again = denied or error.status in (*UNDECIDED, Status.ABORTED)
                if not left or not again or (denied and self._may_not_annotate):
                    self._may_not_annotate = self._may_not_annotate or denied
                    return
            await deferLater(self._execution.clock, backoff.failed())

    async def drop_claim(self, key: ObjectKey, action: Action) -> str:
        """
        Remove this inventory's claim from an object of another inventory that was
        removed from Git here.

        The other inventory may be about to release the object for this one: its agent
        reads the claim when it makes its plan, and may wait for minutes after that.
        The agent that writes later fails, because both requests name the object's
        version.

        :returns: why the object cannot be forgotten now; empty if it can.
        """
        live, own = action.live, self._execution.inventory_id
        if live is None or not owner_of(live) or claimed_by(live) != own:
            return ""
        try:
            resource = await self._execution.resource_of(live)
            await self._annotate_unchanged(key, live, resource, {CLAIMED_BY: None})
        except CallError as error:
            if error.status in (*UNDECIDED, Status.ABORTED):
                return words_of(key, error)
        return ""

    async def detach(self, key: ObjectKey, action: Action) -> None:
        """Remove this inventory's annotations; all else stays."""
        assert action.live is not None
        given_by = self._execution.inventory_id if action.gives else None
        ours = {OWNER: None, GIVEN_BY: given_by}
        try:
            resource = await self._execution.resource_of(action.live)
            await self._annotate_unchanged(key, action.live, resource, ours)
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                self._execution.ledger.note(key, Outcome.FAILED, error.message)
                return
        self._execution.ledger.entries.pop(key, None)
        self._execution.ledger.note(key, Outcome.DETACHED, action.reason)

    async def _annotate_unchanged(
        self,
        key: ObjectKey,
        live: KubernetesObject,
        resource: KubernetesResource,
        annotations: Mapping[str, str | None],
    ) -> None:
        """
        Change annotations of an object that is unchanged since it was read; None
        removes an annotation.

        :raises CallError: ABORTED if another client changed the object since then.
        """
        self._execution.ledger.check_leads()
        names = ("uid", "resourceVersion")
        metadata = {name: live["metadata"].get(name, "") for name in names}
        patch = {"metadata": {**metadata, "annotations": annotations}}
        await self._execution.client.patch(
            resource, key.name, patch, key.namespace, field_manager=FIELD_MANAGER
        )

    async def take(self, action: Action) -> bool:
        """
        Mark an object as owned by this inventory, unless another agent was faster.

        If two agents marked it, each would act as its owner, and the agent whose commit
        does not contain it would delete it.
        """
        assert action.manifest is not None
        key, own = action.key, self._execution.inventory_id
        if key in self._taken:
            return True
        former = action.seen.owner if action.seen is not None else ""
        resource = await self._execution.resource_of(action.manifest)
        for _ in range(BUSY_TIMES):
            live = await live_object(self._execution.client, resource, key)
            if live is None or live["metadata"].get("uid", "") != action.uid:
                return False
            if (owner := owner_of(live)) not in ("", former):
                return owner == own
            mark = {OWNER: own, CLAIMED_BY: None, GIVEN_BY: None}
            try:
                await self._annotate_unchanged(key, live, resource, mark)
            except CallError as error:
                # Another client changed the object in the meantime.
                if error.status is not Status.ABORTED:
                    raise
            else:
                self._taken.add(key)
                entries = self._execution.ledger.entries
                entries[key] = attrs.evolve(entries[key], claimed="")
                return True
        return False
