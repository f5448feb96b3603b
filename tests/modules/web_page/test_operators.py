"""Sessions for operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from modules.web_page.server.operators import PAGE_SESSIONS
from modules.web_page.wire import page_sessions_pb2 as wire
from tests.modules.web_page.stand import PageBrowser, PageStand
from tunnel.api import Access, AuditStage, EnforcedEvents, Reach
from tunnel.errors import CallError, Status


@pytest.fixture
def stand() -> Iterator[PageStand]:
    stand = PageStand()
    stand.users.tokens["b"] = Access("user:bob", "1", "prod")
    stand.users.reaches["b"] = Reach("user:bob", "user:bob", ())
    yield stand
    stand.close()


def call(stand: PageStand, method: str, request: Any) -> Any:
    return stand.pair.run(stand.pair.external(PAGE_SESSIONS).call(method, request))


def signed_in(stand: PageStand, *tokens: str) -> list[PageBrowser]:
    browsers = []
    for token in tokens:
        stand.clock.advance(1)
        browsers.append(PageBrowser(stand))
        browsers[-1].sign_in(token)
    return browsers


def test_list(stand: PageStand) -> None:
    signed_in(stand, "secret", "b", "secret")
    found = call(stand, "ListSessions", wire.ListRequest()).sessions
    assert [one.owner for one in found] == ["user:alice", "user:bob", "user:alice"]
    for user in ("bob", "user:bob"):
        (one,) = call(stand, "ListSessions", wire.ListRequest(user=user)).sessions
        assert (one.name, one.method) == ("bob", "token")
        assert one.ends_at > one.used_at == one.created_at
    assert not call(stand, "ListSessions", wire.ListRequest(user="eve")).sessions


@pytest.mark.parametrize("how", ["ids", "user", "all"])
def test_end(stand: PageStand, how: str) -> None:
    browsers = signed_in(stand, "secret", "b", "secret")
    found = call(stand, "ListSessions", wire.ListRequest(user="alice")).sessions
    request = {
        "ids": wire.EndRequest(ids=[one.id for one in found]),
        "user": wire.EndRequest(user="alice"),
        "all": wire.EndRequest(all=True),
    }[how]
    ended = call(stand, "EndSessions", request).sessions
    assert len(ended) == (3 if how == "all" else 2)
    statuses = [one.get("/ui/api/session").status for one in browsers]
    assert statuses == [401, 401 if how == "all" else 200, 401]
    assert set(stand.revoked) == {f"session:{one.id}" for one in ended}
    (event,) = stand.module._api.audit.events
    assert event.action == "page.end_sessions"
    assert event.details["count"] == len(ended)


def test_unknown_sessions(stand: PageStand) -> None:
    """None ends if an id is wrong."""
    (browser,) = signed_in(stand, "secret")
    (session,) = stand.sessions
    for ids in ([session.id, "0" * 16], []):
        with pytest.raises(CallError) as caught:
            call(stand, "EndSessions", wire.EndRequest(ids=ids))
        assert caught.value.status is Status.NOT_FOUND
    assert browser.get("/ui/api/session").status == 200


def test_enforced_events(stand: PageStand) -> None:
    """The end begins after its event is on disk, if the operator wants that."""
    signed_in(stand, "secret")
    audit = stand.module._api.audit
    audit.enforced = frozenset([EnforcedEvents.ADMINISTRATION])
    call(stand, "EndSessions", wire.EndRequest(all=True))
    stages = [one.stage for one in audit.events]
    assert stages == [AuditStage.BEGUN, AuditStage.ENDED]
    assert len({one.id for one in audit.events}) == 1
