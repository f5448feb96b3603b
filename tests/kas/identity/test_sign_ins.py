"""Sign-ins in the audit log: accepted and refused credentials."""

from __future__ import annotations

import attrs
import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.task import Clock

from kas.identity import sign_ins as module
from kas.identity.authenticators import Authenticators
from kas.identity.sign_ins import ACCEPTED_SECONDS, REFUSED_SECONDS, SignIns
from tests.kas.identity.test_authenticators import ALICE, PROD, Remote
from tunnel.api import (
    SESSION_COOKIE,
    Access,
    AgentIdentity,
    AuditEvent,
    AuditStage,
)
from tunnel.errors import CallError, Status

BOB = Access("remote:bob", "1", "prod")


@attrs.frozen
class Caller:
    """A client with an address and a program."""

    peer_address: IAddress
    program: str = "kubectl/v1.36"

    @classmethod
    def at(cls, host: str) -> Caller:
        return cls((IPv6Address if ":" in host else IPv4Address)("TCP", host, 40000))


@attrs.define(eq=False)
class Signing:
    """Authenticators with one that asks another server, and the recorded events."""

    clock: Clock = attrs.field(factory=Clock)
    events: list[AuditEvent] = attrs.field(factory=list)
    remote: Remote = attrs.field(factory=Remote)
    all: Authenticators = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        signs = SignIns(self.events.append, self.clock)
        self.all = Authenticators(self.clock, sign_ins=signs)
        self.all.add(self.remote, "rem-")

    def user(
        self,
        result: Access | CallError,
        host: str = "192.0.2.1",
        token: str = "s3cret",
        kind: str = "remote",
    ) -> None:
        answer = self.all.authorize_user(kind, "prod", token, Caller.at(host))
        assert isinstance(answer, Deferred)
        answer.addErrback(lambda failure: failure.trap(CallError))
        waiting = self.remote.accesses.pop()
        if isinstance(result, CallError):
            waiting.errback(result)
        else:
            waiting.callback(result)


@pytest.fixture
def signing() -> Signing:
    return Signing()


def refusal(status: Status = Status.UNAUTHENTICATED) -> CallError:
    return CallError(status, "the token is not valid")


def test_the_first_use_of_a_credential(signing: Signing) -> None:
    for host in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        signing.user(ALICE, host)
    signing.user(BOB, token="other")
    first, moved, other = signing.events
    assert first == AuditEvent(
        "sign_in",
        ALICE,
        "accepted",
        {"method": "remote", "client": "192.0.2.1", "user_agent": "kubectl/v1.36"},
    )
    assert moved.details["client"] == "192.0.2.2"
    assert other.access is BOB


def test_again_after_half_a_day(signing: Signing) -> None:
    signing.user(ALICE)
    signing.clock.pump([ACCEPTED_SECONDS - 1])
    signing.user(ALICE)
    assert len(signing.events) == 1
    signing.clock.pump([1])
    signing.user(ALICE)
    assert len(signing.events) == 2


def test_one_client_has_many_addresses(signing: Signing) -> None:
    for number in range(5):
        signing.user(ALICE, f"2001:db8::{number}")
    signing.user(ALICE, "2001:db8:1::1")
    assert [one.details["client"] for one in signing.events] == [
        "2001:db8::0",
        "2001:db8:1::1",
    ]


def test_an_agent(signing: Signing) -> None:
    for _ in range(2):
        answer = signing.all.authenticate_agent(b"remote-1", Caller.at("192.0.2.1"))
        assert isinstance(answer, Deferred)
        signing.remote.identities.pop().callback(PROD)
    (event,) = signing.events
    assert event.access is None
    assert event.details == {
        "method": "agent",
        "credential": "agent:1:remote",
        "agent": "prod",
        "agent_id": "1",
        "client": "192.0.2.1",
        "user_agent": "kubectl/v1.36",
    }


@pytest.mark.parametrize(
    "status",
    [Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.NOT_FOUND],
    ids=lambda status: status.name,
)
def test_a_refused_credential(signing: Signing, status: Status) -> None:
    """The refusal of the same credential is recorded once a minute."""
    for _ in range(2):
        signing.user(refusal(status))
    (event,) = signing.events
    assert (event.stage, event.outcome) == (AuditStage.DENIED, "refused")
    assert event.stranger
    assert event.details == {
        "method": "remote",
        "reason": "the token is not valid",
        "status": status.name,
        "client": "192.0.2.1",
        "user_agent": "kubectl/v1.36",
    }
    signing.user(refusal(status), token="another")
    signing.clock.pump([REFUSED_SECONDS])
    signing.user(refusal(status))
    assert len(signing.events) == 3


def test_a_credential_that_was_not_checked(signing: Signing) -> None:
    signing.user(refusal(Status.UNAVAILABLE))
    assert signing.events == []


def test_a_client_that_left(signing: Signing) -> None:
    answer = signing.all.authorize_user("remote", "prod", "token")
    assert isinstance(answer, Deferred)
    answer.addErrback(lambda _: None)
    answer.cancel()
    assert signing.events == []


def test_no_token_is_recorded(signing: Signing) -> None:
    """Users confuse the parts of a credential."""
    for kind, agent in (("s3cret", "prod"), ("", "s3cret"), ("s3cret", "s3cret")):
        with pytest.raises(CallError):
            found = Authenticators(signing.clock, sign_ins=signing.all.sign_ins)
            found.authorize_user(kind, agent, "s3cret")
    (event,) = signing.events
    assert "s3cret" not in str(event)
    assert event.details == {
        "method": "unknown",
        "reason": "unknown kind of credential",
        "status": "UNAUTHENTICATED",
    }


def test_a_credential_without_a_kind(signing: Signing) -> None:
    signing.user(ALICE, kind="", token="rem-1")
    assert signing.events[0].details["method"] == "remote"


@pytest.mark.parametrize("kind", ["ci", "pat", SESSION_COOKIE])
def test_credentials_of_gitlab(signing: Signing, kind: str) -> None:
    """CI jobs, personal access tokens, and sessions of browsers."""
    gitlab = Remote()
    gitlab.user_kinds, gitlab.agent_prefixes = (kind,), ()
    signing.all = Authenticators(signing.clock, sign_ins=signing.all.sign_ins)
    signing.all.add(gitlab)
    signing.remote = gitlab
    signing.user(ALICE, kind=kind)
    assert signing.events[0].details["method"] == kind.replace(" ", "_")


def test_refusals_forget_no_accepted_credential(
    signing: Signing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, strangers could cause events about users, which have no limit."""
    monkeypatch.setattr(module, "MAX_SIGN_INS", 4)
    monkeypatch.setattr(module, "MAX_REFUSED", 4)
    signing = Signing()
    signing.user(ALICE)
    for number in range(20):
        signing.user(refusal(), token=f"guess-{number}", host=f"198.51.100.{number}")
    signing.user(ALICE)
    assert [one.outcome for one in signing.events].count("accepted") == 1
    for host in range(10):
        signing.user(ALICE, f"203.0.113.{host}")
    signs = signing.all.sign_ins
    assert signs is not None
    assert len(signs._next) == len(signs._next_refused) == 4


def test_without_an_audit_log() -> None:
    found = Authenticators(Clock())
    remote = Remote()
    found.add(remote)
    answer = found.authenticate_agent(b"remote-1")
    assert isinstance(answer, Deferred)
    results: list[AgentIdentity] = []
    answer.addCallback(results.append)
    remote.identities.pop().callback(PROD)
    assert results == [PROD]
