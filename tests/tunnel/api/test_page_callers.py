"""The user of a request for a page, as the audit log sees the client."""

from __future__ import annotations

from twisted.internet.address import IPv4Address
from twisted.web.server import Request
from twisted.web.test.requesthelper import DummyChannel

from tunnel.api import PageCaller, program_of
from tunnel.testing.users import FakeUsers


def caller(*programs: str) -> PageCaller:
    request = Request(DummyChannel(), False)
    request.client = IPv4Address("TCP", "192.0.2.1", 1)
    request.requestHeaders.setRawHeaders("authorization", ["Bearer token"])
    request.requestHeaders.setRawHeaders("user-agent", list(programs))
    return PageCaller.of(FakeUsers(), request)


def test_program() -> None:
    assert program_of(caller("curl/8", "other")) == "curl/8"
    assert len(program_of(caller("x" * 5000))) == 256
    assert caller("curl/8").peer_address == IPv4Address("TCP", "192.0.2.1", 1)


def test_without_a_program() -> None:
    assert program_of(caller()) == ""
    assert program_of(None) == ""
