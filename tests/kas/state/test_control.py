"""The API of the control socket."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
import pytest_twisted
from treq.testing import StubTreq
from twisted.internet.defer import Deferred

from kas.state.control import MAX_BODY, control_site, parse_change
from tunnel.api import AuditStage
from tunnel.errors import CallError, Status


class _Kas:
    """Remembers the calls; its methods return their names."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.bodies: list[bytes] = []

    async def _call(self, name: str) -> dict[str, Any]:
        self.called.append(name)
        if name == "peers":
            raise CallError(Status.UNAVAILABLE, "no worker responds")
        return {"called": name}

    async def drain(self) -> dict[str, Any]:
        return await self._call("drain")

    async def undrain(self) -> dict[str, Any]:
        return await self._call("undrain")

    async def rebalance(self) -> dict[str, Any]:
        return await self._call("rebalance")

    async def agents(self) -> dict[str, Any]:
        return await self._call("agents")

    async def peers(self) -> dict[str, Any]:
        return await self._call("peers")

    async def progress(self) -> dict[str, Any]:
        return await self._call("progress")

    async def record_change(self, body: bytes) -> dict[str, Any]:
        parse_change(body)
        self.bodies.append(body)
        return {}


@pytest.fixture
def kas() -> _Kas:
    return _Kas()


@pytest.fixture
def client(kas: _Kas) -> Any:
    return StubTreq(control_site(kas).resource)


async def _ask(
    client: Any, method: str, path: str, body: bytes | None = None
) -> tuple[int, str]:
    response = await client.request(method, f"http://kas{path}", data=body)
    return response.code, await response.text()


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/", "progress"),
        ("GET", "/agents", "agents"),
        ("POST", "/drain", "drain"),
        ("POST", "/undrain", "undrain"),
        ("POST", "/rebalance", "rebalance"),
    ],
)
@pytest_twisted.inlineCallbacks
def test_each_path_calls_its_method(
    kas: _Kas, client: Any, method: str, path: str, name: str
) -> Generator[Deferred[Any], Any, None]:
    code, text = yield Deferred.fromCoroutine(_ask(client, method, path))
    assert (code, json.loads(text)) == (200, {"called": name})
    other = "POST" if method == "GET" else "GET"
    code, text = yield Deferred.fromCoroutine(_ask(client, other, path))
    assert code == 405
    assert kas.called == [name]


@pytest_twisted.inlineCallbacks
def test_no_worker_answers(client: Any) -> Generator[Deferred[Any], Any, None]:
    answer = yield Deferred.fromCoroutine(_ask(client, "GET", "/peers"))
    assert answer == (503, "no worker responds\n")


@pytest_twisted.inlineCallbacks
def test_changes_are_checked(
    kas: _Kas, client: Any
) -> Generator[Deferred[Any], Any, None]:
    """kas records a change, and refuses what is too large or no change."""
    change = b'{"action": "user.revoke", "name": "bob", "operator": "alice"}'
    for body, expected in (
        (change, 200),
        (b"{", 400),
        (b"[]", 400),
        (b'{"name": "bob"}', 400),
        (b'{"action": "user.revoke", "name": 1}', 400),
        (b'{"action": "user.revoke", "time": "1970"}', 400),
        (b'{"action": "user.revoke", "credential": "user:alice"}', 400),
        (b'{"action": "user.revoke", "stage": "ended"}', 400),
        (b'{"action": "user.revoke", "stage": "begun", "id": "1"}', 400),
        (b'{"action": "user.revoke", "stage": "denied"}', 400),
        (b"[" * 60_000, 400),
        (b" " * (MAX_BODY + 1), 413),
    ):
        code, _ = yield Deferred.fromCoroutine(_ask(client, "POST", "/changes", body))
        assert code == expected, body[:40]
    assert kas.bodies == [change]


def test_a_change_becomes_an_event() -> None:
    event = parse_change(b'{"action": "user.revoke", "name": "bob", "operator": "al"}')
    assert (event.action, event.outcome) == ("user.revoke", "OK")
    assert event.details == {"name": "bob", "operator": "al"}
    assert event.stage is AuditStage.CHANGED


def test_both_events_of_an_enforced_change() -> None:
    begun = parse_change(b'{"action": "user.revoke", "stage": "begun"}')
    assert (begun.stage, begun.outcome, begun.id) == (AuditStage.BEGUN, "", "")
    ended = parse_change(b'{"action": "user.revoke", "stage": "ended", "id": "1"}')
    assert (ended.stage, ended.outcome, ended.id) == (AuditStage.ENDED, "OK", "1")
    failed = parse_change(
        b'{"action": "a", "stage": "ended", "id": "1", "failed": "true"}'
    )
    assert failed.outcome == "failed"
    assert failed.details == {}
