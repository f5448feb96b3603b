"""Objects that the account of a project may not write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from modules.gitops.agent.inventory.claims import OTHERS_SECONDS
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.project.account_reviews import (
    MAX_ASKED,
    REVIEW_SECONDS,
    AccountReviews,
)
from tunnel.api import KubernetesResource
from tunnel.errors import CallError, Status

KEY = ObjectKey("", "ConfigMap", "default", "x")

#: Answer to a review: the decision, or the status of an error.
_Answer = bool | Status


class Client:
    """API server that answers the reviews of an account."""

    def __init__(
        self, answer: Callable[[int], _Answer], kind: str = "ConfigMap"
    ) -> None:
        self._answer = answer
        self._kind = kind
        self.count = 0

    async def resources(self) -> list[KubernetesResource]:
        return [KubernetesResource("", "v1", self._kind, "configmaps", True)]

    async def json(self, method: str, path: str, body: Any) -> Any:
        answer = self._answer(self.count)
        self.count += 1
        if isinstance(answer, Status):
            raise CallError(answer, "no")
        return {"status": {"allowed": answer}}


def rounds(client: Client, count: int = 30) -> list[bool]:
    """Return whether the object is given up, before each of some reviews."""
    clock, found = Clock(), []
    reviews = AccountReviews(client, clock, True, lambda: None)  # type: ignore[arg-type]
    reviews.is_given_up(KEY)
    running = Deferred.fromCoroutine(reviews.run())
    running.addErrback(lambda failure: failure.trap(CancelledError))
    for _ in range(count):
        found.append(reviews.is_given_up(KEY))
        clock.advance(REVIEW_SECONDS)
    running.cancel()
    return found


def test_denied() -> None:
    """The account has two minutes to get the permission."""
    found = rounds(Client(lambda number: False))
    assert found.index(True) == OTHERS_SECONDS // REVIEW_SECONDS
    assert all(found[found.index(True) :])


def test_errors_change_nothing() -> None:
    """Neither before nor after an object is given up."""
    found = rounds(
        Client(lambda number: Status.UNAVAILABLE if number % 3 == 1 else False)
    )
    assert all(found[found.index(True) :])
    assert not any(rounds(Client(lambda number: Status.UNAVAILABLE)))
    later = rounds(Client(lambda number: number == 0 or Status.UNAVAILABLE))
    assert not any(later)


def test_a_permission_that_comes_and_goes() -> None:
    found = rounds(Client(lambda number: number == 10))
    assert found.index(True) < 10
    assert not found[11]


def test_an_account_that_agentk_may_not_impersonate() -> None:
    assert rounds(Client(lambda number: Status.PERMISSION_DENIED))[-1]


def test_a_kind_that_is_missing() -> None:
    """Nothing is known about its objects."""
    client = Client(lambda number: False, kind="Other")
    assert not any(rounds(client))
    assert client.count == 0


def test_limit() -> None:
    """The objects that were asked about longest ago are not reviewed."""
    reviews = AccountReviews(
        Client(lambda number: False),  # type: ignore[arg-type]
        Clock(),
        True,
        lambda: None,
    )
    for number in range(MAX_ASKED + 1):
        reviews.is_given_up(KEY._replace(name=str(number)))
    assert len(reviews._asked) == MAX_ASKED
