"""Requests to an identity provider that does not end its responses."""

from __future__ import annotations

from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from kas.oidc.code_flow import MAX_BODY, SignInFailed, Unreachable
from kas.oidc.requests import TIMEOUT, ProviderRequests


class _Endless(Resource):
    """Sends *first*, and then what the test writes."""

    isLeaf = True

    def __init__(self, first: bytes) -> None:
        super().__init__()
        self.first = first
        self.request: Any = None

    def render_GET(self, request: Any) -> int:
        self.request = request
        request.write(self.first)
        return NOT_DONE_YET


def _ask(resource: _Endless, clock: Clock) -> tuple[list[Any], Any]:
    agent = RequestTraversalAgent(resource)
    requests = ProviderRequests(agent, clock)
    ends: list[Any] = []
    work = Deferred.fromCoroutine(requests.fetch("https://id.example.com/x"))
    work.addBoth(ends.append)
    for _ in range(5):
        agent.flush()
    return ends, agent


def test_too_large() -> None:
    """kas does not wait for the end of a response that is too large."""
    clock = Clock()
    ends, _ = _ask(_Endless(b"x" * MAX_BODY), clock)
    assert ends == []
    ends, _ = _ask(_Endless(b"x" * (MAX_BODY + 1)), clock)
    assert isinstance(ends[0], Failure)
    assert ends[0].check(SignInFailed) and not ends[0].check(Unreachable)
    assert "more than" in str(ends[0].value)


def test_one_byte_now_and_then() -> None:
    """Bytes do not prolong the time of a response."""
    clock, resource = Clock(), _Endless(b"{")
    ends, agent = _ask(resource, clock)
    for _ in range(int(TIMEOUT)):
        assert ends == []
        resource.request.write(b" ")
        agent.flush()
        clock.advance(1)
    assert isinstance(ends[0], Failure)
    assert ends[0].check(Unreachable)
    assert clock.getDelayedCalls() == []
