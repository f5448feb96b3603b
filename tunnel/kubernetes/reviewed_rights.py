"""Rights of callers, and recent answers of the API server about them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

from tunnel.api import Access, IKubernetes
from tunnel.kubernetes.access_review import Right, is_allowed, is_permitted
from tunnel.toolkit.shared_recent import SharedRecent
from tunnel.toolkit.single_flight import SingleFlight

__all__ = ["ReviewedRights", "Right"]

#: Maximum number of remembered answers: users of one cluster, and their rights.
MAX_ANSWERS: Final = 10_000


_Key = tuple[str, Hashable, Right]


@attrs.frozen
class _Answer:
    allowed: bool
    at: float


class ReviewedRights:
    """
    Access reviews of callers by the API server.

    Concurrent questions about the same right of the same user are one review.

    :param allowed_seconds: seconds for which a positive answer counts.
    :param denied_seconds: seconds for which a negative answer counts.
    """

    def __init__(
        self,
        kubernetes: IKubernetes,
        clock: IReactorTime,
        *,
        allowed_seconds: float = 60.0,
        denied_seconds: float = 10.0,
    ) -> None:
        self._kubernetes = kubernetes
        self._clock = clock
        self._lasts = {True: allowed_seconds, False: denied_seconds}
        #: Each owner has a share, because a user may ask about many namespaces.
        self._answers: SharedRecent[str, _Key, _Answer] = SharedRecent(MAX_ANSWERS)
        self._running: dict[_Key, SingleFlight[bool]] = {}
        #: When rights last changed: earlier answers do not count.
        self._changed_at = float("-inf")

    def changed(self) -> None:
        """Ask the API server again for each answer, because rights have changed."""
        self._changed_at = self._clock.seconds()

    async def may(self, access: Access | None, right: Right) -> bool:
        """
        Return whether a caller has a right.

        :raises CallError: the API server did not answer, or *access* is None.
        """
        client = self._kubernetes.acting_for(access)
        assert access is not None
        # An answer must not outlive a change of the policy.
        if not is_permitted(client, right):
            return False
        key = (access.credential_id, access.impersonated, right)
        owner = access.budget_owner
        found = self._answers.get(owner, key)
        if found is not None and found.at >= self._changed_at:
            if self._clock.seconds() - found.at < self._lasts[found.allowed]:
                return found.allowed

        async def review() -> bool:
            # The answer may be as old as the question.
            asked = self._clock.seconds()
            allowed = await is_allowed(client, **right._asdict())
            self._answers.set(owner, key, _Answer(allowed, asked))
            return allowed

        def ended() -> None:
            self._running.pop(key, None)

        flight = self._running.get(key)
        if flight is None:
            flight = self._running[key] = SingleFlight(
                review, abandon=True, ended=ended
            )
        return await flight.get()
