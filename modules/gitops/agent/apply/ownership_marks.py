"""Annotations that mark an object as owned, claimed or given by an inventory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from modules.gitops.agent.apply.execution import (
    BUSY_FIRST,
    BUSY_MOST,
    BUSY_TIMES,
    Execution,
)
from modules.gitops.agent.apply.ledger import Superseded
from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.apply.refusal import words_of
from modules.gitops.agent.objects.error_statuses import UNDECIDED
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.live import live_object, patch_unchanged
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import (
    CLAIMED_BY,
    GIVEN_BY,
    OWNER,
    claimed_by,
    given_by,
    owner_of,
)
from modules.gitops.agent.plan.plan import Action
from tunnel.api import KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.parallel import in_parallel

__all__ = ["ANNOTATE_TIMES", "MARK_SECONDS", "OwnershipMarks"]

#: Maximum number of denied attempts to mark an object, and maximum number of attempts
#: to remove a claim.
ANNOTATE_TIMES = 4

#: Maximum seconds for all claims and takes before the first object is applied, because
#: a webhook may delay each request for one object by 30 seconds.
MARK_SECONDS = 5.0

#: An attempt to mark an object; it returns whether no further attempt is needed.
_Mark = Callable[[], Coroutine[Any, Any, bool]]


@attrs.define(eq=False)
class OwnershipMarks:
    """Marks of ownership that one execution sets and removes."""

    _log = Logger()

    _execution: Execution
    #: Whether even the last permitted attempt to claim an object was denied.
    _may_not_annotate: bool = attrs.field(default=False, init=False)
    #: Objects that `take` has taken.
    _taken: set[ObjectKey] = attrs.field(factory=set, init=False)
    #: The number of attempts that were denied, by object.
    _denials: Counter[ObjectKey] = attrs.field(factory=Counter, init=False)
    #: The task that marks objects in the background; None if it has ended.
    _marking: Deferred[None] | None = attrs.field(default=None, init=False)

    @property
    def takes_any(self) -> bool:
        """Whether the plan takes objects from other owners."""
        return any(one.takes for one in self._execution.plan.wanted.values())

    async def mark_all(self) -> None:
        """
        Mark the objects whose owner changes: take the objects that this inventory may
        take, and claim the objects that another inventory has to release first.

        This method returns after `MARK_SECONDS` at the latest; unfinished attempts then
        continue in the background.  The marks must be set before the inventory names
        the commit, because the former owner acts as soon as it sees the commit in the
        inventory, and the objects may be applied much later.
        """
        own = self._execution.inventory_id
        wanted = self._execution.plan.wanted.values()
        takes = [partial(self._try_to_take, one) for one in wanted if one.takes]
        claims = [
            partial(self._try_to_annotate, one, {CLAIMED_BY: own})
            for one in wanted
            if one.claims and not one.takes and one.seen and one.seen.claimed_by != own
        ]
        done: Deferred[None] = Deferred()
        self._marking = Deferred.fromCoroutine(self._mark([*takes, *claims]))
        self._marking.addBoth(self._marked, done)
        done.addTimeout(MARK_SECONDS, self._execution.clock)
        try:
            await done
        except TimeoutError:
            # One object with a silent webhook must not delay all others.
            return

    def stop(self) -> None:
        """Stop marking objects in the background."""
        if self._marking is not None:
            self._marking.cancel()

    async def _mark(self, marks: list[_Mark]) -> None:
        """Repeat each attempt until it succeeds or cannot succeed."""
        backoff = Backoff(lambda: 1.0, BUSY_FIRST, BUSY_MOST)
        while marks:
            ended = await in_parallel(marks)
            marks = [one for one, over in zip(marks, ended, strict=True) if not over]
            if marks:
                await deferLater(self._execution.clock, backoff.failed())

    def _marked(self, result: object, done: Deferred[None]) -> None:
        self._marking = None
        if isinstance(result, Failure) and not result.check(CancelledError, Superseded):
            self._log.failure("marking objects failed", result)
        if not done.called:
            done.callback(None)

    async def _try_to_take(self, action: Action) -> bool:
        """Take an object; return False if the attempt must be repeated."""
        try:
            await self.take(action)
        except CallError as error:
            # Applying the object also takes it, and reports the failure.
            return not self._is_to_be_repeated(action, error)
        return True

    async def _try_to_annotate(
        self, action: Action, annotations: Mapping[str, str | None]
    ) -> bool:
        """
        Change annotations of an object, regardless of its version; None removes an
        annotation.

        :returns: False if the attempt must be repeated.
        """
        assert action.manifest is not None
        key = action.key
        patch = {"metadata": {"uid": action.uid, "annotations": annotations}}
        self._execution.ledger.check_leads()
        try:
            resource = await self._execution.resource_of(action.manifest)
            await self._execution.client.patch(
                resource, key.name, patch, key.namespace, field_manager=FIELD_MANAGER
            )
        except CallError as error:
            return not self._is_to_be_repeated(action, error)
        return True

    def _is_to_be_repeated(self, action: Action, error: CallError) -> bool:
        if error.status is not Status.PERMISSION_DENIED:
            return error.status in (*UNDECIDED, Status.ABORTED)
        # Permissions may also come with the same commit, a moment later.
        self._denials[action.key] += 1
        if self._denials[action.key] >= ANNOTATE_TIMES:
            self._may_not_annotate = True
        return not self._may_not_annotate

    async def drop_claim_of(self, action: Action) -> None:
        """
        Remove this inventory's claim from an object that it now owns.

        A failure is ignored: the next pass tries again.
        """
        backoff = Backoff(lambda: 1.0, BUSY_FIRST, BUSY_MOST)
        for _ in range(ANNOTATE_TIMES):
            if await self._try_to_annotate(action, {CLAIMED_BY: None}):
                return
            await deferLater(self._execution.clock, backoff.failed())

    async def drop_claim(self, key: ObjectKey, action: Action) -> str:
        """
        Remove this inventory's claim from an object of another inventory that was
        removed from Git here.

        The agent of the other inventory may be about to release the object for this
        inventory: that agent reads the claim when it makes its plan, and may wait for
        minutes before it acts.  Because both requests name the object's version, the
        later of the two fails.

        :returns: why the object cannot be forgotten now; empty if the object can be
            forgotten.
        """
        live, own = action.live, self._execution.inventory_id
        if live is None or not owner_of(live) or claimed_by(live) != own:
            return ""
        try:
            resource = await self._execution.resource_of(live)
            await self._annotate_unchanged(live, resource, {CLAIMED_BY: None})
        except CallError as error:
            if error.status in (*UNDECIDED, Status.ABORTED):
                return words_of(key, error)
        return ""

    async def detach(self, key: ObjectKey, action: Action) -> None:
        """
        Remove this inventory's annotations from an object that stays in the cluster.
        """
        assert action.live is not None
        given_by = self._execution.inventory_id if action.gives else None
        ours = {OWNER: None, GIVEN_BY: given_by}
        try:
            resource = await self._execution.resource_of(action.live)
            await self._annotate_unchanged(action.live, resource, ours)
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                self._execution.ledger.note(key, Outcome.FAILED, error.message)
                return
        self._execution.ledger.entries.pop(key, None)
        self._execution.ledger.note(key, Outcome.DETACHED, action.reason)

    async def _annotate_unchanged(
        self,
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
        client, change = self._execution.client, {"annotations": annotations}
        await patch_unchanged(client, resource, live, change, FIELD_MANAGER)

    async def take(self, action: Action) -> bool:
        """
        Mark an object as owned by this inventory, unless another agent has marked it
        since the plan was made.

        If two agents marked the object, each would act as its owner, and an agent whose
        commit does not contain the object would delete it.
        """
        assert action.manifest is not None
        key, own = action.key, self._execution.inventory_id
        if key in self._taken:
            return True
        seen = action.seen
        former = seen.owner if seen is not None else ""
        claimers = ("", own, seen.claimed_by if seen is not None else "")
        resource = await self._execution.resource_of(action.manifest)
        for _ in range(BUSY_TIMES):
            live = await live_object(self._execution.client, resource, key)
            if live is None or live["metadata"].get("uid", "") != action.uid:
                return False
            if (owner := owner_of(live)) not in ("", former):
                return owner == own
            if claimed_by(live) not in claimers:
                # The next plan decides whether the owner gives the object away at
                # another commit.
                return False
            # Record a claim of the previous owner: if the owner still has the object in
            # Git, it gets the object back later, unless it drops the claim.
            claim: str | None = owner if owner and owner != own else None
            if not owner and given_by(live) == own:
                # The other agent may still have the object in Git: if this agent gives
                # it up again, the claim counts again, unless that agent drops it.
                claim = claimed_by(live) or None
            mark = {OWNER: own, CLAIMED_BY: claim, GIVEN_BY: None}
            try:
                await self._annotate_unchanged(live, resource, mark)
            except CallError as error:
                # Another client changed the object in the meantime.
                if error.status is not Status.ABORTED:
                    raise
            else:
                self._taken.add(key)
                entries = self._execution.ledger.entries
                if (entry := entries.get(key)) is not None:
                    entries[key] = attrs.evolve(entry, claimed="")
                return True
        return False
