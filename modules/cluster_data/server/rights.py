"""
ReaderRights of readers: the API server of each cluster decides which rows they see.

A list of a kind is reviewed for the whole cluster first, and then for each namespace
with rows.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

import attrs
from twisted.internet.interfaces import IReactorTime

from modules.cluster_data.server.store.queries import ListScope, cluster_identity
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tunnel.api import Access, IServerModuleApi, IServiceClient
from tunnel.errors import CallError, NoApiServer, Status
from tunnel.toolkit.peer_slots import PeerSlots
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.shared_recent import SharedRecent

__all__ = ["ALLOWED_SECONDS", "DENIED_SECONDS", "OFFLINE_SECONDS", "ReaderRights"]

_REVIEWS = wire.DESCRIPTOR.services_by_name["ClusterReviews"]

#: Lifetime of an answer of the API server, in seconds.
ALLOWED_SECONDS, DENIED_SECONDS = 60.0, 10.0

#: Lifetime of a positive answer while agentk or the API server is not connected, in
#: seconds: no new rows arrive then.
OFFLINE_SECONDS = 24 * 3600.0

#: Maximum age of a positive answer after an error of a cluster that is connected.  An
#: answer counts no longer than usual: a user whose rights were revoked could keep the
#: cluster busy, and a proxy in front of an API server may respond with any status.
#: After any other error, such as a user whom agentk may no longer impersonate, no
#: earlier answer counts.
_AGES = {
    Status.UNAVAILABLE: ALLOWED_SECONDS,
    Status.DEADLINE_EXCEEDED: ALLOWED_SECONDS,
    Status.RESOURCE_EXHAUSTED: ALLOWED_SECONDS,
    Status.INTERNAL: ALLOWED_SECONDS,
}

#: Maximum number of remembered answers of one kas.
MAX_ANSWERS = 100_000

#: Maximum number of remembered failures of calls.
MAX_FAILURES = 10_000

#: Maximum number of lists of one call, as in the agent half.
MAX_LISTS = 100

#: Timeout of one call in seconds, and if the agent does not publish rows, because it is
#: not connected then.
TIMEOUT, TIMEOUT_ABSENT = 10.0, 2.0

#: Seconds after a failed call during which no other call is made for the same user and
#: cluster.
FAILURE_SECONDS = 5.0


#: Credential, impersonated user, and identity of the cluster.
_UserKey = tuple[str, Hashable, str]

#: A user at a cluster, and a list.
_AnswerKey = tuple[_UserKey, ListScope]


@attrs.frozen
class _Answer:
    """An answer of the API server, and the time at which it arrived."""

    allowed: bool
    at: float


@attrs.frozen
class _Failure:
    """A call that failed: the reason, and the age of earlier answers that counts."""

    reason: str
    age: float
    at: float


@attrs.frozen
class _Asked:
    """
    Questions of a user about one cluster.

    :ivar is_connected: whether agentk publishes rows.
    :ivar answers: answers that the table may have forgotten, because a user may ask
        more questions than the table has room for.
    """

    access: Access
    identity: str
    is_connected: bool
    answers: dict[ListScope, _Answer] = attrs.field(factory=dict)

    @property
    def timeout(self) -> float:
        """Return the timeout of a call in seconds."""
        return TIMEOUT if self.is_connected else TIMEOUT_ABSENT

    def age_after(self, error: CallError) -> float:
        """Return the maximum age of a positive answer after an error."""
        # A call waits for an absent agent longer than for its own response.
        no_response = (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED)
        is_absent = error.status in no_response and not self.is_connected
        if is_absent or isinstance(error, NoApiServer):
            return OFFLINE_SECONDS
        return _AGES.get(error.status, 0.0)

    @property
    def user(self) -> _UserKey:
        """
        Return the key of the user.

        It contains everything of the user that the API server sees, because the groups
        of one credential may change.
        """
        return self.access.credential_id, self.access.impersonated, self.identity


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
        #: Each owner has a share, because a user may ask about many namespaces.
        self._answers: SharedRecent[str, _AnswerKey, _Answer] = SharedRecent(
            MAX_ANSWERS
        )
        #: Calls of one user at one cluster run one after the other: a call that waits
        #: often finds all answers in the end.
        self._calls: PeerSlots[tuple[_UserKey, str]] = PeerSlots(1)
        #: When rights in the clusters of agents last changed: earlier answers are old.
        self._changed: Recent[str, float] = Recent(MAX_ANSWERS)
        self._failures: SharedRecent[str, tuple[_UserKey, str], _Failure] = (
            SharedRecent(MAX_FAILURES)
        )

    async def permitted(
        self,
        access: Access,
        scopes: Collection[ListScope],
        identity: str,
        is_connected: bool,
    ) -> Permitted:
        """
        Return the scopes of one agent whose rows a user may see.

        :param scopes: lists of the agent that *access* is for.
        :param identity: the identity of the cluster with these rows: `KnownCluster`.
        :param is_connected: whether an answer can be expected.
        """
        asked = _Asked(access, identity, is_connected)
        # A list that every cluster has: without it, an error or a delay would tell a
        # user without rights whether the store has rows.
        probe = ListScope(access.agent_id, "", "namespaces", "")
        readable = [one for one in scopes if _may_ask(access, one)]
        wide = {one: one._replace(namespace="") for one in readable}
        reason, age = await self._ask(asked, {probe, *wide.values()})
        allowed = {one for one in readable if self._is_allowed(asked, wide[one], age)}
        rest = {one for one in readable if one not in allowed and one.namespace}
        if rest and not reason:
            reason, age = await self._ask(asked, rest)
        allowed |= {one for one in rest if self._is_allowed(asked, one, age)}
        return Permitted(frozenset(allowed), reason)

    def _is_allowed(self, asked: _Asked, scope: ListScope, age: float) -> bool:
        answer = self._answer(asked, scope)
        if answer is None or not answer.allowed:
            return False
        return self._clock.seconds() - answer.at <= age

    def _answer(self, asked: _Asked, scope: ListScope) -> _Answer | None:
        """Return an answer, and keep it until all questions are answered."""
        answer = asked.answers.get(scope)
        if answer is None:
            owner = asked.access.budget_owner
            answer = self._answers.get(owner, (asked.user, scope))
            if answer is not None:
                asked.answers[scope] = answer
        return answer

    async def _ask(
        self, asked: _Asked, scopes: Collection[ListScope]
    ) -> tuple[str, float]:
        """
        Review the scopes without a fresh answer.

        :return: why the cluster could not be asked, or an empty text; and the maximum
            age of a positive answer that counts now.
        """
        key = asked.user, asked.access.agent_id
        async with self._calls.slot(key):
            now = self._clock.seconds()
            owner = asked.access.budget_owner
            failure = self._failures.get(owner, key)
            if failure is not None and now - failure.at < FAILURE_SECONDS:
                return failure.reason, failure.age
            stale = sorted(one for one in scopes if not self._is_fresh(asked, one))
            client = self._api.calls.client(
                _REVIEWS, asked.access.agent_id, asked.access
            )
            try:
                for start in range(0, len(stale), MAX_LISTS):
                    await self._review(client, asked, stale[start : start + MAX_LISTS])
            except CallError as error:
                age = asked.age_after(error)
                at = self._clock.seconds()
                self._failures.set(owner, key, _Failure(error.message, age, at))
                return error.message, age
            return "", ALLOWED_SECONDS + TIMEOUT

    async def _review(
        self, client: IServiceClient, asked: _Asked, scopes: list[ListScope]
    ) -> None:
        request = wire.ReviewRequest(
            lists=[
                wire.ReviewedList(
                    group=one.group, resource=one.resource, namespace=one.namespace
                )
                for one in scopes
            ]
        )
        # The answer may be as old as the question.
        now = self._clock.seconds()
        response = await client.call("Review", request, timeout=asked.timeout)
        if response.unreachable:
            # The reason has addresses, which are not for users.
            raise NoApiServer(
                Status.UNAVAILABLE, "agentk has no connection to the API server"
            )
        identity = cluster_identity(response.cluster_uid, response.epoch)
        if identity != asked.identity:
            # Rights in one cluster are no rights in another one.
            raise CallError(
                Status.FAILED_PRECONDITION,
                "the agent has moved to another cluster, whose rows have not arrived",
            )
        for scope, allowed in zip(scopes, response.allowed, strict=False):
            answer = asked.answers[scope] = _Answer(allowed, now)
            self._answers.set(asked.access.budget_owner, (asked.user, scope), answer)

    def _is_fresh(self, asked: _Asked, scope: ListScope) -> bool:
        answer = self._answer(asked, scope)
        if answer is None:
            return False
        if answer.at < self._changed.get(asked.access.agent_id, answer.at):
            return False
        lasts = ALLOWED_SECONDS if answer.allowed else DENIED_SECONDS
        return self._clock.seconds() - answer.at < lasts

    def changed(self, agent_id: str) -> None:
        """Ask the API server of an agent's cluster again for each answer."""
        self._changed[agent_id] = self._clock.seconds()

    def forget(self, credential_id: str) -> None:
        """Forget the answers for a credential."""
        self._answers.forget(lambda key: key[0][0] == credential_id)


def _may_ask(access: Access, scope: ListScope) -> bool:
    """Return whether kas itself permits a read-only user to read a list."""
    is_secret = (scope.group, scope.resource) == ("", "secrets")
    return not (access.read_only and is_secret and not access.secrets)
