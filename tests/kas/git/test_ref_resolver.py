"""Callers that share requests for refs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kas.git.ref_resolver import MAX_TOGETHER, RefResolver
from tunnel.errors import CallError, Status


class Server:
    """
    A Git server that responds when the test lets it.

    :ivar known: what one request finds out about several refs.
    """

    def __init__(self, *, together: bool = True) -> None:
        self.known: Mapping[str, str | CallError] = {}
        self.requests: list[tuple[str, ...]] = []
        self._waiting: list[Deferred[None]] = []
        self.resolver = RefResolver(self._ask, self._look if together else None)

    async def _ask(self, ref: str) -> str:
        await self._request(ref)
        return f"commit of {ref}"

    async def _look(self, refs: Sequence[str]) -> Mapping[str, str | CallError]:
        await self._request("look", *refs)
        return self.known

    def _request(self, *request: str) -> Deferred[None]:
        self.requests.append(request)
        assert not self._waiting, "one request at a time"
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def respond(self, error: Exception | None = None) -> None:
        """Respond to the request."""
        waiting = self._waiting.pop()
        if error is None:
            waiting.callback(None)
        else:
            waiting.errback(error)

    def get(self, ref: str) -> list[Any]:
        """Ask for a ref; the list gets the result."""
        found: list[Any] = []
        self.resolver.get(ref).addBoth(found.append)
        return found


def down() -> CallError:
    return CallError(Status.UNAVAILABLE, "down")


def test_one_after_the_other() -> None:
    """Callers that come during a request share the next one."""
    server = Server(together=False)
    first, other = server.get("a"), server.get("b")
    later = [server.get("a") for _ in range(5)]
    assert server.requests == [("a",)]
    for _ in range(3):
        server.respond()
    assert (first, other) == (["commit of a"], ["commit of b"])
    assert later == [["commit of a"]] * 5
    assert server.requests == [("a",), ("b",), ("a",)]


def test_refs_that_have_not_changed() -> None:
    """One request suffices for them, and they do not wait for changed refs."""
    server = Server()
    first = server.get("a")
    server.known = {"a": "0"}
    found = {ref: server.get(ref) for ref in ("changed", "b", "c", "gone")}
    server.respond()
    assert first == ["0"]
    assert server.requests[1] == ("look", "changed", "b", "c", "gone")
    gone = CallError(Status.NOT_FOUND, "gone")
    server.known = {"b": "1", "c": "2", "gone": gone}
    server.respond()
    assert (found["b"], found["c"], found["changed"]) == (["1"], ["2"], [])
    assert found["gone"][0].value.status is Status.NOT_FOUND
    assert server.requests[2:] == [("changed",)]
    # Those who come now do not get that result.
    late = server.get("b")
    server.respond()
    assert found["changed"] == ["commit of changed"] and late == []
    server.known = {}
    server.respond()
    server.respond()
    assert late == ["commit of b"]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_server_that_is_down(is_known: bool) -> None:
    """It gets one request for all, and not one for each."""
    server = Server()
    server.known = {"a": "0"}
    server.get("a")
    others = [server.get(ref) for ref in "bcde"]
    server.respond()
    # An unexpected error, too, must leave nobody waiting.
    server.respond(down() if is_known else IndexError("no"))
    for found in others:
        assert isinstance(found[0], Failure)
        assert found[0].check(CallError)
        assert ("down" in str(found[0].value)) is is_known
    assert len(server.requests) == 2
    # Each caller has an error of its own.
    assert len({id(one[0].value) for one in others}) == 4
    # And later ones have none of theirs.
    found = server.get("b")
    server.respond()
    server.respond()
    assert found == ["commit of b"]


def test_an_unexpected_error() -> None:
    """The refs behind it are resolved."""
    server = Server()
    server.get("0")
    found = {ref: server.get(ref) for ref in "abc"}
    server.respond()
    server.respond()
    server.respond()
    server.respond(ValueError("no"))
    assert found["a"][0].check(CallError)
    server.respond()
    server.respond()
    assert (found["b"], found["c"]) == (["commit of b"], ["commit of c"])


def test_very_many() -> None:
    server = Server()
    server.known = {"a": "0"}
    server.get("a")
    refs = [f"r{number}" for number in range(MAX_TOGETHER + 1)]
    found = [server.get(ref) for ref in refs]
    server.respond()
    server.known = dict.fromkeys(refs, "1")
    assert len(server.requests[1]) == MAX_TOGETHER + 1
    server.respond()
    assert found[:-1] == [["1"]] * MAX_TOGETHER
    server.known = {}
    server.respond()
    server.respond()
    assert found[-1] == [f"commit of {refs[-1]}"]


def test_callers_that_leave() -> None:
    """They take nothing from the others."""
    server = Server()
    server.known = {"a": "0"}
    server.get("a")
    leaving = [server.resolver.get("b"), server.resolver.get("c")]
    staying = server.get("b")
    for one in leaving:
        one.addErrback(lambda failure: None)
        one.cancel()
    server.respond()
    server.known = {"b": "1", "c": "2"}
    server.respond()
    assert staying == ["1"]
