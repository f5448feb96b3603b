"""kas' side of an identity provider, joined with the fake in memory."""

from __future__ import annotations

from typing import Any

import attrs
from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.config.oidc import OidcAccess, OpenIdConnect
from kas.oidc.description import ProviderDescription
from kas.oidc.keys import ProviderKeys
from kas.oidc.requests import ProviderRequests
from tests.fakes.identity_provider import CLIENT_ID, FakeIdentityProvider
from tunnel.api import ReachableAgent

ISSUER = "https://id.example.com"
NOW = 1_700_000_000.0
EVERYONE = OidcAccess(users=("oidc:alice",), agents=("*",))


@attrs.define
class FewAgents:
    """
    The agents of a kas.

    :ivar found: id and name by each of both.
    :ivar is_listed: whether kas knows all of them.
    """

    found: dict[str, tuple[str, str]]
    is_listed: bool = True

    def find_agent(self, agent: str) -> tuple[str, str] | None:
        return self.found.get(agent)

    def reachable(self) -> list[ReachableAgent] | None:
        if not self.is_listed:
            return None
        return [ReachableAgent(*one) for one in sorted(set(self.found.values()))]


class OidcCase(SynchronousTestCase):
    """`ProviderKeys` of a `FakeIdentityProvider`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.provider = FakeIdentityProvider(ISSUER, self.now)
        self.traversal = RequestTraversalAgent(self.provider.app.resource())

    def now(self) -> float:
        return NOW + self.clock.seconds()

    def settings(self, **more: Any) -> OpenIdConnect:
        wanted: dict[str, Any] = {
            "issuer": ISSUER,
            "client_id": CLIENT_ID,
            "access": (EVERYONE,),
            **more,
        }
        return OpenIdConnect(**wanted)

    def make_keys(self, **more: Any) -> ProviderKeys:
        requests = ProviderRequests(self.traversal, self.clock)
        description = ProviderDescription(ISSUER, requests, self.clock)
        return ProviderKeys(self.settings(**more), description, requests, self.clock)

    def settle(self) -> None:
        """Let bytes move until nothing does."""
        for _ in range(5):
            self.traversal.flush()
            self.clock.advance(0)

    def wait(self, seconds: float, step: float = 1.0) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.settle()

    def settled(self, answer: Deferred[Any]) -> Deferred[Any]:
        self.settle()
        return answer
