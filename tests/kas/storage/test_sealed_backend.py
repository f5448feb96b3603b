"""Values that another program wrote, and secrets that change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from kas.storage.sealed_backend import SEAL_BYTES, SealedBackend
from tunnel.errors import CallError, Status
from tunnel.testing import FakeStore

NAME = "mod/one"


class Inner(FakeStore):
    """A backend whose values a test can replace."""

    async def replace(self, name: str, key: str, value: bytes, version: int) -> bool:
        """As `ReplacingBackend`."""
        entries = self._namespaces[name].entries
        if entries[key].stored.version != version:
            return False
        stored = attrs.evolve(entries[key].stored, value=value)
        entries[key] = attrs.evolve(entries[key], stored=stored)
        return True


class Stand:
    """A sealed backend with its secrets."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.inner = Inner(self.clock)
        self.secrets: tuple[bytes, ...] = (b"a" * 32,)
        self.sealed = self.kas()

    def kas(self) -> SealedBackend:
        """A kas with the secrets of that time."""
        return SealedBackend(self.inner, lambda: self.secrets)

    def do(self, coroutine: Any) -> Any:
        """The result of a coroutine."""
        found: list[Any] = []
        Deferred.fromCoroutine(coroutine).addBoth(found.append)
        (result,) = found
        if isinstance(result, Failure):
            result.raiseException()
        return result

    def get(self, key: str, name: str = NAME) -> bytes | None:
        """The value that a module gets."""
        found = self.do(self.sealed.get(name, key))
        return None if found is None else found.value

    def set(self, key: str, value: bytes, version: int | None = None) -> int:
        """Set a value as a module."""
        version = self.do(self.sealed.set(NAME, key, value, version, None))
        return version

    def forge(self, key: str, value: bytes, name: str = NAME) -> None:
        """Set a value as another program."""
        self.do(self.inner.set(name, key, value, None, None))

    def stored(self, key: str) -> Any:
        """The value in the inner backend."""
        return self.do(self.inner.get(NAME, key))


@pytest.fixture
def stand() -> Stand:
    return Stand()


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The lines of the log so far."""
    lines: list[str] = []

    @implementer(ILogObserver)
    def note(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(note)
    yield lines
    globalLogPublisher.removeObserver(note)


@pytest.mark.parametrize("value", [b"", b"x", bytes(range(256)) * 256])
def test_values(stand: Stand, value: bytes) -> None:
    stand.set("k", value)
    assert stand.get("k") == value
    assert len(stand.stored("k").value) == len(value) + SEAL_BYTES
    assert stand.get("other") is None


@pytest.mark.parametrize("forged", [b"", b"forged", b"\x01" + b"0" * 40])
def test_a_value_of_another_program(
    stand: Stand, forged: bytes, logged: list[str]
) -> None:
    """It counts as missing, so that a module can create the key."""
    stand.set("k", b"good")
    stand.forge("k", forged)
    assert stand.get("k") is None
    assert stand.get("k") is None
    assert sum("without a valid seal" in one for one in logged) == 1
    stand.set("k", b"new", version=0)
    assert stand.get("k") == b"new"


def test_each_byte_counts(stand: Stand) -> None:
    stand.set("k", b"good")
    good = stand.stored("k").value
    for place in range(len(good)):
        changed = bytearray(good)
        changed[place] ^= 1
        stand.forge("k", bytes(changed))
        assert stand.get("k") is None, place
    stand.forge("k", good)
    assert stand.get("k") == b"good"


def test_a_value_in_another_place(stand: Stand) -> None:
    """A seal is valid for one key of one namespace."""
    stand.set("k", b"good")
    sealed = stand.stored("k").value
    stand.forge("other", sealed)
    assert stand.get("other") is None
    stand.forge("k", sealed, "mod/two")
    assert stand.get("k", "mod/two") is None


def test_conflicts(stand: Stand) -> None:
    """Only values without a seal are replaced although their version differs."""
    version = stand.set("k", b"1")
    for wrong in (0, version - 1):
        with pytest.raises(CallError) as caught:
            stand.set("k", b"2", version=wrong)
        assert caught.value.status is Status.ABORTED
    stand.forge("k", b"forged")
    with pytest.raises(CallError):
        stand.set("k", b"2", version=version)
    assert stand.stored("k").value == b"forged"


def test_a_new_secret(stand: Stand, logged: list[str]) -> None:
    """Values get new seals while the old secret is accepted; versions stay."""
    versions = {key: stand.set(key, b"of " + key.encode()) for key in "abc"}
    stand.forge("d", b"forged")
    old = stand.secrets[0]
    stand.do(stand.sealed.sweep(NAME))
    # Other kas sign with the new secret before this one does.
    stand.secrets = (old, b"b" * 32)
    stand.do(stand.sealed.sweep(NAME))
    assert logged == []
    stand.secrets = (b"b" * 32, old)
    assert stand.get("a") == b"of a"
    stand.do(stand.sealed.sweep(NAME))
    assert logged == ["sealed 3 values of mod/one with the new secret"]
    stand.secrets = (b"b" * 32,)
    stand.do(stand.sealed.sweep(NAME))
    assert [stand.get(key) for key in "abcd"] == [b"of a", b"of b", b"of c", None]
    assert {key: stand.stored(key).version for key in "abc"} == versions


def test_a_secret_that_is_replaced_at_once(stand: Stand) -> None:
    """Values of a lost kas are not believed."""
    stand.set("k", b"1")
    stand.secrets = (b"b" * 32,)
    assert stand.get("k") is None
    stand.set("k", b"2", version=0)
    assert stand.get("k") == b"2"


def test_secrets_stay_secret(stand: Stand) -> None:
    stand.secrets = (b"hush" * 8, b"b" * 32)
    stand.do(stand.sealed.sweep(NAME))
    assert "hush" not in repr(stand.sealed)
