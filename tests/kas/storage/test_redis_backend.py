"""Answers of Redis about values that another program wrote."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kas.storage.redis_backend import RedisBackend
from tunnel.errors import CallError, Status
from tunnel.hosting.stores import StoreLimits


def answered(*answer: Any) -> tuple[Any, list[Any]]:
    """Return a backend whose Redis answers that, and the commands that it gets."""
    backend: Any = RedisBackend.__new__(RedisBackend)
    asked: list[Any] = []

    async def call(*command: Any) -> Any:
        asked.append(command)
        return answer

    backend.client = Mock(tried=True, call=call)
    backend._seen, backend._now, backend._listener = {}, None, None
    backend._settings = Mock(key_prefix="kas")
    backend._limits = StoreLimits(keys=1, bytes=1)
    return backend, asked


def result_of(coroutine: Any) -> Any:
    found: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(found.append)
    return found[0]


def test_keys_that_are_no_text() -> None:
    """They are left out, and the next page begins after them."""
    backend, asked = answered(b"e", b"1", b"found", b"c\xff", [b"a", b"b\xff", b"c"])
    keys, last = result_of(backend.page("usage", "", "", 10))
    assert keys == ["a", "c"]
    result_of(backend.page("usage", "", last, 10))
    assert b"c\xff" in asked[1]


@pytest.mark.parametrize(
    ("what", "answer"),
    [
        ("get", (b"e", b"no", b"found", b"1", b"value")),
        ("get", (b"e", b"1", b"found", b"no", b"value")),
        ("sweep", (b"e", b"1", b"found", b"no")),
        ("set", (b"e", b"1", b"found", b"no")),
    ],
)
def test_numbers_that_are_none(what: str, answer: tuple[bytes, ...]) -> None:
    """They are an error of the call, as all that the store cannot do."""
    backend, _ = answered(*answer)
    if what == "get":
        found = result_of(backend.get("usage", "key"))
    elif what == "set":
        found = result_of(backend.set("usage", "key", b"value", None, None))
    else:
        found = result_of(backend.sweep("usage"))
    assert isinstance(found, Failure)
    assert isinstance(found.value, CallError)
    assert found.value.status is Status.INTERNAL
    assert "does another program write below kas:txkas1:store?" in found.value.message


def test_other_version_that_is_no_text() -> None:
    backend, _ = answered(b"e", b"1", b"other", b"\xff")
    found = result_of(backend.delete("usage", "key", 1))
    assert found.check(CallError)
