"""The fake of providers that sign users in."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from tunnel.api import ISignInProvider, IUsers, LoggedOut, SignedIn
from tunnel.errors import CallError, Status
from tunnel.testing import FakeSignInProvider
from tunnel.testing.users import FakeUsers

BACK = "https://kas.example.com/back"
_T = TypeVar("_T")


def run(work: Awaitable[_T]) -> _T:
    ends: list[Any] = []
    Deferred.fromCoroutine(_awaited(work)).addBoth(ends.append)
    if isinstance(ends[0], Failure):
        ends[0].raiseException()
    return ends[0]  # type: ignore[no-any-return]


async def _awaited(work: Awaitable[_T]) -> _T:
    return await work


def test_life() -> None:
    """A sign-in, its renewals, and its end."""
    provider, users = FakeSignInProvider(), FakeUsers()
    verifyObject(ISignInProvider, provider)
    users.sign_in_providers.append(provider)
    verifyObject(IUsers, users)
    alice = SignedIn(
        kind="oidc",
        token="token",
        refresh_token="refresh",
        expires_at=600.0,
        name="Alice",
        subject="alice",
    )
    provider.codes["code"] = alice
    begun = run(provider.begin(BACK))
    assert begun.state in begun.url
    answer = {"state": begun.state, "code": "code"}
    for secret, wrong in ((b"other", answer), (begun.secret, {**answer, "state": "x"})):
        with pytest.raises(CallError, match="does not belong"):
            run(provider.finish(secret, begun.state, wrong, BACK))
    assert run(provider.finish(begun.secret, begun.state, answer, BACK)) is alice
    with pytest.raises(CallError, match="invalid_grant"):
        run(provider.finish(begun.secret, begun.state, answer, BACK))
    renewed = run(provider.renew(alice))
    assert renewed.subject == "alice"
    assert renewed.token != alice.token
    assert renewed.expires_at == 1200.0
    with pytest.raises(CallError, match="invalid_grant"):
        run(provider.renew(alice))
    run(provider.renew(renewed))
    assert BACK in run(provider.end_url(alice, BACK))
    provider.has_end = False
    assert run(provider.end_url(alice, BACK)) == ""


def test_failures() -> None:
    provider = FakeSignInProvider()
    begun = run(provider.begin(BACK))
    denied = {"state": begun.state, "error": "access_denied"}
    with pytest.raises(CallError, match="access_denied"):
        run(provider.finish(begun.secret, begun.state, denied, BACK))
    gone = LoggedOut(subject="alice", session="", issued_at=1.0)
    provider.logouts["token"] = gone
    assert run(provider.logged_out("token")) is gone
    with pytest.raises(CallError, match="not valid"):
        run(provider.logged_out("other"))
    provider.failure = CallError(Status.UNAVAILABLE, "try again")
    with pytest.raises(CallError, match="try again"):
        run(provider.begin(BACK))
