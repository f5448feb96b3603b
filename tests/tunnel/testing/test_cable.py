"""The fakes for tests of channels keep to their interfaces."""

from __future__ import annotations

import pytest
from zope.interface.verify import verifyObject

from tunnel.api import Access, ICableCaller, ICableSubscription
from tunnel.errors import CallError
from tunnel.testing import FakeCableSubscription


def test_subscription() -> None:
    """Messages are recorded until it ends."""
    one = FakeCableSubscription("C", {"agent": "prod"})
    verifyObject(ICableSubscription, one)
    one.send({"n": 1})
    one.send_json('{"n":2}', key="a")
    one.reject()
    one.send({"n": 3})
    assert one.sent == [({"n": 1}, ""), ({"n": 2}, "a")]


def test_caller() -> None:
    """Rights at the agents that the test names, and at no other."""
    access = Access("user:alice", "7", "prod")
    caller = FakeCableSubscription("C", {}, {"prod": access}).caller
    verifyObject(ICableCaller, caller)
    with pytest.raises(StopIteration) as done:
        caller.authorize("prod").send(None)
    assert done.value.value is access
    with pytest.raises(CallError):
        caller.authorize("other").send(None)
