"""`FakeRepository` says what real ones would (tests/integration/test_git.py)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tunnel.api import GitAddress, IRepositories, IRepository
from tunnel.errors import CallError, Status
from tunnel.testing import FakeRepositories


class FakeRepositoryTests(SynchronousTestCase):
    """The answers of `IRepository` from memory."""

    def setUp(self) -> None:
        self.repositories = FakeRepositories()
        self.repository = self.repositories.open(GitAddress(url="https://git/x"))

    def ask(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def fails(self, coroutine: Coroutine[Any, Any, Any]) -> Status:
        failure = self.failureResultOf(Deferred.fromCoroutine(coroutine), CallError)
        status: Status = failure.value.status
        return status

    def test_interfaces(self) -> None:
        """They are what modules are given."""
        self.assertTrue(verifyObject(IRepositories, self.repositories))
        self.assertTrue(verifyObject(IRepository, self.repository))
        again = self.repositories.open(GitAddress(url="https://git/x"))
        self.assertIs(again, self.repository)

    def test_reading(self) -> None:
        """A ref, folders, files, and what changed."""
        old = self.repository.commit({"a/b/c": "1", "a/d": "2"})
        self.assertEqual(self.ask(self.repository.resolve()), old)
        found = self.ask(self.repository.tree(old, "a"))
        self.assertEqual(
            [(one.path, one.kind.value) for one in found],
            [("a/b", "folder"), ("a/d", "file")],
        )
        every = self.ask(self.repository.tree(old, recursive=True))
        self.assertEqual([one.path for one in every], ["a/b/c", "a/d"])
        self.assertEqual(self.ask(self.repository.read(old, "a/d", limit=1)), b"2")
        new = self.repository.commit({"a/b/c": "1", "e": "3"})
        self.assertEqual(self.ask(self.repository.changed(old, new)), ["a/d", "e"])
        self.assertEqual(self.ask(self.repository.changed(old, new, "a")), ["a/d"])

    def test_refusals(self) -> None:
        """What is not there, what is too large, and a server that is down."""
        self.assertIs(self.fails(self.repository.resolve()), Status.NOT_FOUND)
        commit = self.repository.commit({"a": "12"})
        for asked, status in (
            (self.repository.tree(commit, "b"), Status.NOT_FOUND),
            (self.repository.read(commit, "b", limit=9), Status.NOT_FOUND),
            (self.repository.read("0" * 40, "a", limit=9), Status.OUT_OF_RANGE),
            (self.repository.read(commit, "a", limit=1), Status.RESOURCE_EXHAUSTED),
        ):
            self.assertIs(self.fails(asked), status)
        self.repository.down = CallError(Status.UNAVAILABLE, "down")
        self.assertIs(self.fails(self.repository.resolve()), Status.UNAVAILABLE)
        self.repository.down = None
        self.repository.remove("HEAD")
        self.assertIs(self.fails(self.repository.resolve()), Status.NOT_FOUND)
