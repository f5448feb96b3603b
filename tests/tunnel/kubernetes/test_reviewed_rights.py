"""Access reviews whose answers count for a while."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tunnel.api import Access, Impersonation
from tunnel.errors import CallError
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients, ReviewedRights, Right, reviewed_rights
from tunnel.testing import FakeCluster

PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
LIST = Right("list", "pods", namespace="a")


class Reviewed:
    """Rights of users, and the API server that decides."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)
        pool = UpstreamPool(self.cluster.endpoint, self.clock)
        clients = KubernetesClients(self.cluster, pool, self.clock, jitter=lambda: 0.5)
        self.rights = ReviewedRights(clients, self.clock)

    def decide(self, allowed: bool) -> None:
        self.cluster.answer("POST", PATH, {"status": {"allowed": allowed}}, 201)

    def ask(self, user: str = "ann", right: Right = LIST) -> Any:
        access = Access(f"user:{user}", "1", "main", Impersonation(user))
        results: list[Any] = []
        asking = Deferred.fromCoroutine(self.rights.may(access, right))
        asking.addBoth(results.append)
        return results

    def answer(self, user: str = "ann", right: Right = LIST) -> Any:
        (result,) = self.answers(self.ask(user, right))
        return result

    def answers(self, results: list[Any]) -> list[Any]:
        for _ in range(4):
            self.clock.advance(0)
        return results

    @property
    def count(self) -> int:
        return len(self.cluster.requests)


def test_answers_count_for_a_while() -> None:
    stand = Reviewed()
    stand.decide(True)
    assert stand.answer() is True
    stand.decide(False)
    stand.clock.advance(59)
    assert (stand.answer(), stand.count) == (True, 1)
    stand.clock.advance(2)
    assert (stand.answer(), stand.count) == (False, 2)
    stand.decide(True)
    stand.clock.advance(9)
    assert (stand.answer(), stand.count) == (False, 2)
    stand.clock.advance(2)
    assert (stand.answer(), stand.count) == (True, 3)


def test_each_user_and_each_right() -> None:
    stand = Reviewed()
    stand.decide(True)
    assert stand.answer("ann")
    stand.decide(False)
    assert not stand.answer("bob")
    assert not stand.answer("ann", Right("list", "pods"))
    assert [one.user for one in stand.cluster.requests] == ["ann", "bob", "ann"]


def test_concurrent_questions_are_one() -> None:
    stand = Reviewed()
    stand.decide(True)
    first, second = stand.ask(), stand.ask()
    assert stand.answers(first) == [True] == second
    assert stand.count == 1


def test_no_answer_and_no_user() -> None:
    stand = Reviewed()
    stand.cluster.answer("POST", PATH, {"message": "later"}, 503)
    failure = stand.answer()
    failure.trap(CallError)
    # A failure is not an answer.
    stand.decide(True)
    assert stand.answer() is True
    nobody = Deferred.fromCoroutine(stand.rights.may(None, LIST))
    refused: list[Any] = []
    nobody.addErrback(refused.append)
    assert "does not name a user" in refused[0].getErrorMessage()


def test_a_user_with_many_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """They displace no answers for others."""
    monkeypatch.setattr(reviewed_rights, "MAX_ANSWERS", 10)
    stand = Reviewed()
    stand.decide(True)
    stand.answer("ann")
    for number in range(20):
        stand.answer("bob", Right("list", "pods", namespace=f"n{number}"))
    before = stand.count
    assert stand.answer("ann") is True
    assert stand.count == before
