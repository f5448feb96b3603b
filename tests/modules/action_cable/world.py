"""The module on a listener, with a channel and clients, without a socket."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.task import Clock
from zope.interface import implementer

from kas.config.schema import Web, WebListen
from kas.web.listener import WebFactory
from modules.action_cable.messages import PROTOCOL
from modules.action_cable.server import PATH, ActionCableServer
from tests.kas.web.socket_client import SocketClient
from tunnel.api import Access, ICable, IChannel
from tunnel.errors import CallError, Status
from tunnel.testing import ModulePair

__all__ = ["CableClient", "CableWorld", "FakeChannel", "identifier"]

TOKEN = "user:prod:secret"


def identifier(channel: str = "TestChannel", **params: Any) -> str:
    """The text that a client makes."""
    return json.dumps({"channel": channel, **params})


@implementer(IChannel)
class FakeChannel:
    """Records calls; each method returns or raises what the test has set."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.subscriptions: list[Any] = []
        #: Results by method: a Deferred or an exception.
        self.results: dict[str, Any] = {}
        self.snapshots = 0
        self.state: Any = None

    def _result(self, method: str) -> Any:
        result = self.results.get(method)
        if isinstance(result, Exception):
            raise result
        return result

    def subscribe(self, subscription: Any) -> Any:
        self.calls.append("subscribe")
        self.subscriptions.append(subscription)
        return self._result("subscribe")

    def send_snapshot(self, subscription: Any) -> Any:
        self.snapshots += 1
        self.calls.append("snapshot")
        subscription.send(self.state or {"snapshot": self.snapshots})
        return self._result("send_snapshot")

    def resume(self, subscription: Any, data: Any) -> Any:
        self.calls.append(("resume", data))
        subscription.send({"since": data})
        return self._result("resume")

    def perform(self, subscription: Any, action: str, data: Any) -> Any:
        self.calls.append((action, data))
        return self._result("perform")

    def unsubscribe(self, subscription: Any) -> None:
        self.calls.append("unsubscribe")

    @property
    def subscription(self) -> Any:
        return self.subscriptions[-1]


class CableClient(SocketClient):
    """A client that speaks ActionCable."""

    def command(self, name: str, identifier: str = "", **more: str) -> None:
        self.send(json.dumps({"command": name, "identifier": identifier, **more}))

    def subscribe(self, identifier: str) -> None:
        self.command("subscribe", identifier)

    def perform(self, identifier: str, action: str, **data: Any) -> None:
        self.command("message", identifier, data=json.dumps({**data, "action": action}))

    def seen(self) -> list[Any]:
        """What arrived, except pings of the WebSocket; answer them, too."""
        found = self.read()
        self.flush()
        texts = [one for one in found if isinstance(one, str) and one != "ping"]
        closes = [one for one in found if isinstance(one, tuple)]
        return [json.loads(one) for one in texts] + closes


class CableWorld:
    """One kas."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.pair = ModulePair(self.clock)
        self.module = self.pair.server_half(ActionCableServer, **settings)
        self.api = self.module.api
        self.hub = self.module._hub
        self.hub.time = lambda: 1234.9
        self.hub.random = lambda: 0.5
        self.api.users.tokens["secret"] = Access("user:alice", "7", "prod")
        self.pair.start()
        web = Web(listen=WebListen(), max_connections=1000)
        self.factory = WebFactory(web, self.pair._pages, self.clock)
        self.channel = FakeChannel()
        self.cable = self.api.capabilities.get(ICable)
        self.withdraw = self.cable.serve("TestChannel", self.channel)

    def timers(self) -> list[Any]:
        """Delayed calls that the module or the listener has left."""
        calls: Any = self.clock.getDelayedCalls()
        own = ("modules.action_cable", "tunnel.hosting", "kas.web", "twisted.web")
        return [
            one
            for one in calls
            if str(getattr(one.func, "__module__", "")).startswith(own)
        ]

    def connect(self, token: str = TOKEN, path: str = PATH, **more: Any) -> CableClient:
        """Open a connection; the caller reads what arrives."""
        if token:
            more["Authorization"] = f"Bearer {token}"
        more.setdefault("subprotocols", [PROTOCOL, "actioncable-unsupported"])
        client = CableClient(self, path, **more)
        client.open()
        return client

    def welcomed(self, **more: Any) -> CableClient:
        """Open a connection with a good credential."""
        client = self.connect(**more)
        assert client.seen() == [{"type": "welcome"}]
        return client

    def subscribed(self, text: str = "", **more: Any) -> CableClient:
        """Open a connection with one subscription, whose snapshot has arrived."""
        client = self.welcomed(**more)
        client.subscribe(text or identifier())
        (confirmation, _) = client.seen()
        assert confirmation["type"] == "confirm_subscription"
        return client


def denied(text: str = "no") -> CallError:
    """A refusal of one channel."""
    return CallError(Status.PERMISSION_DENIED, text)
