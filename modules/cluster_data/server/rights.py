"""
ReaderRights of readers: the API server of each cluster decides which rows they see.

A list of a kind is reviewed for the whole cluster first, and then for each namespace
with rows.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

import attrs
from twisted.internet.interfaces import IReactorTime

from modules.cluster_data.server.store.queries import ListScope
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tunnel.api import Access, IServerModuleApi, IServiceClient
from tunnel.errors import CallError, Status
from tunnel.toolkit.recent import Recent

__all__ = ["ALLOWED_SECONDS", "DENIED_SECONDS", "OFFLINE_SECONDS", "ReaderRights"]

_REVIEWS = wire.DESCRIPTOR.services_by_name["ClusterReviews"]

#: Seconds for which an answer of the API server counts.
ALLOWED_SECONDS, DENIED_SECONDS = 60.0, 10.0

#: Seconds for which a positive answer counts while the cluster cannot be asked.
OFFLINE_SECONDS = 24 * 3600.0

#: The same if the API server is too busy, or fails.
BUSY_SECONDS = 300.0

#: Maximum age of a positive answer after an error.  After any other error, such as a
#: user whom agentk may no longer impersonate, no earlier answer counts.
_AGES = {
    Status.UNAVAILABLE: OFFLINE_SECONDS,
    Status.DEADLINE_EXCEEDED: OFFLINE_SECONDS,
    Status.RESOURCE_EXHAUSTED: BUSY_SECONDS,
    Status.INTERNAL: BUSY_SECONDS,
}

#: Maximum number of remembered answers of one kas.
MAX_ANSWERS = 100_000

#: Maximum number of lists of one call, as in the agent half.
MAX_LISTS = 100

#: Timeout of one call in seconds.
TIMEOUT = 10.0


#: Credential, impersonated user, and list.
_AnswerKey = tuple[str, Hashable, ListScope]


@attrs.frozen
class _Answer:
    """An answer of the API server, and the time at which it arrived."""

    allowed: bool
    at: float


@attrs.frozen
class Permitted:
    """
    Result of reviews.

    :ivar scopes: the permitted ones of the asked scopes.
    :ivar reason: why the cluster could not be asked; empty if it answered.
    """

    scopes: frozenset[ListScope]
    reason: str = ""


class ReaderRights:
    """
    Answers of API servers to access reviews.

    :param seconds: returns the time of the clock for all durations.
    """

    def __init__(self, api: IServerModuleApi, clock: IReactorTime) -> None:
        self._api = api
        self._clock = clock
        self._answers: Recent[_AnswerKey, _Answer] = Recent(MAX_ANSWERS)

    async def permitted(
        self, access: Access, scopes: Collection[ListScope]
    ) -> Permitted:
        """
        Return the scopes of one agent whose rows a user may see.

        :param scopes: lists of the agent that *access* is for.
        """
        readable = [one for one in scopes if _may_ask(access, one)]
        wide = {one: one._replace(namespace="") for one in readable}
        reason, age = await self._ask(access, set(wide.values()))
        allowed = {one for one in readable if self._is_allowed(access, wide[one], age)}
        rest = {one for one in readable if one not in allowed and one.namespace}
        if rest and not reason:
            reason, age = await self._ask(access, rest)
        allowed |= {one for one in rest if self._is_allowed(access, one, age)}
        return Permitted(frozenset(allowed), reason)

    def _is_allowed(self, access: Access, scope: ListScope, age: float) -> bool:
        answer = self._answers.get(_key(access, scope))
        if answer is None or not answer.allowed:
            return False
        return self._clock.seconds() - answer.at <= age

    async def _ask(
        self, access: Access, scopes: Iterable[ListScope]
    ) -> tuple[str, float]:
        """
        Review the scopes without a fresh answer.

        :return: why the cluster could not be asked, or an empty text; and the maximum
            age of a positive answer that counts now.
        """
        stale = sorted(one for one in scopes if not self._is_fresh(access, one))
        client = self._api.calls.client(_REVIEWS, access.agent_id, access)
        try:
            for start in range(0, len(stale), MAX_LISTS):
                await self._review(client, access, stale[start : start + MAX_LISTS])
        except CallError as error:
            return error.message, _AGES.get(error.status, 0.0)
        return "", ALLOWED_SECONDS + TIMEOUT

    async def _review(
        self, client: IServiceClient, access: Access, scopes: list[ListScope]
    ) -> None:
        request = wire.ReviewRequest(
            lists=[
                wire.ReviewedList(
                    group=one.group, resource=one.resource, namespace=one.namespace
                )
                for one in scopes
            ]
        )
        response = await client.call("Review", request, timeout=TIMEOUT)
        now = self._clock.seconds()
        for scope, allowed in zip(scopes, response.allowed, strict=False):
            self._answers[_key(access, scope)] = _Answer(allowed, now)

    def _is_fresh(self, access: Access, scope: ListScope) -> bool:
        answer = self._answers.get(_key(access, scope))
        if answer is None:
            return False
        lasts = ALLOWED_SECONDS if answer.allowed else DENIED_SECONDS
        return self._clock.seconds() - answer.at < lasts

    def forget(self, credential_id: str) -> None:
        """Forget the answers for a credential."""
        for key in [one for one in self._answers if one[0] == credential_id]:
            del self._answers[key]


def _may_ask(access: Access, scope: ListScope) -> bool:
    """Return whether kas itself permits a read-only user to read a list."""
    is_secret = (scope.group, scope.resource) == ("", "secrets")
    return not (access.read_only and is_secret and not access.secrets)


def _key(access: Access, scope: ListScope) -> _AnswerKey:
    """
    Return the key of an answer.

    It contains everything of the user that the API server sees, because the groups of
    one credential may change.
    """
    user = access.impersonation
    seen = None
    if user is not None:
        extra = tuple(sorted((name, tuple(one)) for name, one in user.extra.items()))
        seen = (user.username, user.groups, user.uid, extra)
    return access.credential_id, seen, scope
