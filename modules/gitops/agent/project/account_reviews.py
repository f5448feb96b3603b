"""
Objects that the account of a project may not write.

The manifest of a project may name any object, also one of another project, which keeps
the object as long as this project has it in Git.  So an account without permission to
write the object may keep it for `OTHERS_SECONDS` only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from modules.gitops.agent.inventory.claims import OTHERS_SECONDS
from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import IKubernetesClient
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.recent import Recent

__all__ = ["MAX_ASKED", "REVIEW_SECONDS", "AccountReviews"]

#: API path for checks of an account's own permissions.
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

#: Seconds between two reviews of an object, because the permission often arrives with
#: the same commit, from another project.
REVIEW_SECONDS = 20.0

#: Seconds after which an object that no project asks about is not reviewed any more.
FORGET_SECONDS = 900.0

#: Maximum number of objects that are reviewed.  Beyond that, an object that was asked
#: about longest ago counts as one that the account may write.
MAX_ASKED = 10_000


class AccountReviews:
    """
    Reviews of the permissions of a project's account, for objects that other projects
    keep for it.

    :param client: acts as the account.
    :param has_account: whether the project has an account of its own, with fewer
        permissions than agentk.
    :param changed: called when another result of `is_given_up` is possible.
    """

    def __init__(
        self,
        client: IKubernetesClient,
        clock: IReactorTime,
        has_account: bool,
        changed: Callable[[], object],
    ) -> None:
        self._client = client
        self._clock = clock
        self._has_account = has_account
        self._changed = changed
        #: Objects that other projects asked about, with the time of the last question.
        self._asked: Recent[ObjectKey, float] = Recent(MAX_ASKED)
        #: Objects that the account may not write, with the time of the first refusal.
        self._forbidden: dict[ObjectKey, float] = {}
        self._given_up: frozenset[ObjectKey] = frozenset()
        self._waiter: Deferred[None] | None = None

    def is_given_up(self, key: ObjectKey) -> bool:
        """
        Return whether the account was forbidden for too long to write an object.

        The first question about an object starts its reviews.
        """
        if not self._has_account:
            return False
        is_new = key not in self._asked
        self._asked[key] = self._clock.seconds()
        if is_new and self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            waiter.callback(None)
        return key in self._given_up

    async def run(self) -> None:
        """Review objects until cancelled."""
        while True:
            if not self._asked:
                self._waiter = Deferred()
                await self._waiter
            await self._review_all()
            await deferLater(self._clock, REVIEW_SECONDS)

    async def _review_all(self) -> None:
        now = self._clock.seconds()
        for key, asked in tuple(self._asked.items()):
            if now - asked > FORGET_SECONDS:
                del self._asked[key]
        keys = tuple(self._asked)
        try:
            every = await self._client.resources()
        except CallError:
            return
        kinds = {(one.group, one.kind): one.name for one in every}
        results = await in_parallel(
            partial(self._may_write, key, kinds.get((key.group, key.kind)))
            for key in keys
        )
        before, now = self._forbidden, self._clock.seconds()
        self._forbidden = {
            key: before.get(key, now)
            for key, allowed in zip(keys, results, strict=True)
            if (key in before if allowed is None else not allowed)
        }
        given_up = frozenset(
            key
            for key, since in self._forbidden.items()
            if now - since >= OTHERS_SECONDS
        )
        if given_up != self._given_up:
            self._given_up = given_up
            self._changed()

    async def _may_write(self, key: ObjectKey, resource: str | None) -> bool | None:
        """Return whether the account may write an object; None if it is unknown."""
        if resource is None:
            return None
        attributes = {
            "verb": "patch",
            "group": key.group,
            "resource": resource,
            "namespace": key.namespace,
            "name": key.name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            said = await self._client.json("POST", _REVIEWS, review)
        except CallError as error:
            # Without permission to act as the account, agentk cannot write either.
            return False if error.status is Status.PERMISSION_DENIED else None
        return (said.get("status") or {}).get("allowed") is not False
