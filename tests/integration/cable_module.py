"""A module with a channel, and the page that subscribes to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
from klein import Klein
from zope.interface import implementer, provider

from tunnel.api import (
    CableStarted,
    ICable,
    ICableSubscription,
    IChannel,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
)

#: The dropin that makes it known.
DROPIN = """\
from tunnel.plugin import ServerModule

cable_test = ServerModule("cable_test", "tests.integration.cable_module.CableModule")
"""


@attrs.frozen(kw_only=True)
class CableModuleConfiguration:
    """``modules.cable_test``."""

    folder: str = ""


@provider(IServerModuleFactory)
@implementer(IServerModule, IChannel)
class CableModule:
    """Numbers that grow, each message with its position."""

    configuration = CableModuleConfiguration
    app: Any = Klein()

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._api = api
        self._folder = Path(api.configuration.folder)
        self._subscriptions: set[ICableSubscription] = set()
        self._withdraw: Callable[[], object] = lambda: None
        self._position = 0
        api.web.mount("/cable-test", self.app.resource())

    async def start(self) -> None:
        """Serve the channel, again if the other module restarts."""
        self._api.events.subscribe(CableStarted, lambda _: self._serve())
        self._serve()

    async def stop(self) -> None:
        """Withdraw the channel."""
        self._withdraw()

    def _serve(self) -> None:
        cable = self._api.capabilities.get(ICable)
        if cable is not None:
            self._withdraw = cable.serve("TestChannel", self)

    # IChannel

    async def subscribe(self, subscription: ICableSubscription) -> None:
        """For users of the agent."""
        await subscription.caller.authorize(str(subscription.params.get("agent")))
        self._subscriptions.add(subscription)

    def send_snapshot(self, subscription: ICableSubscription) -> None:
        """Where it is."""
        subscription.send({"s": self._position, "snapshot": True})

    def resume(self, subscription: ICableSubscription, data: Mapping[str, Any]) -> None:
        """What came since."""
        for number in range(data["s"] + 1, self._position + 1):
            subscription.send({"s": number})

    def perform(
        self, subscription: ICableSubscription, action: str, data: Mapping[str, Any]
    ) -> None:
        """One message, or several."""
        assert action == "bump"
        for _ in range(data["by"]):
            self._send({})

    def unsubscribe(self, subscription: ICableSubscription) -> None:
        """Forget it."""
        self._subscriptions.discard(subscription)

    def _send(self, message: dict[str, Any]) -> bytes:
        self._position += 1
        for one in self._subscriptions:
            one.send({"s": self._position, **message})
        return json.dumps([self._position, len(self._subscriptions)]).encode()

    # What the test and the browser ask for

    @app.route("/page", methods=["GET"])
    def page(self, request: Any) -> bytes:
        """The page."""
        request.setHeader(b"content-type", b"text/html")
        request.setHeader(
            b"content-security-policy",
            b"default-src 'none'; script-src 'self'; connect-src 'self' "
            b"http://127.0.0.1:*",
        )
        return b'<!doctype html><script type="module" src="page.js"></script>'

    @app.route("/<name>.js", methods=["GET"])
    def script(self, request: Any, name: str) -> bytes:
        """A script."""
        request.setHeader(b"content-type", b"text/javascript")
        return (self._folder / f"{name}.js").read_bytes()

    @app.route("/act/<name>", methods=["POST"])
    def act(self, request: Any, name: str) -> bytes:
        """Tell all subscribers to do something; the position, and their number."""
        return self._send({"act": name})

    @app.route("/quietly", methods=["POST"])
    def quietly(self, request: Any) -> bytes:
        """One message without an order."""
        return self._send({})

    @app.route("/flood/<int:count>", methods=["POST"])
    def flood(self, request: Any, count: int) -> bytes:
        """Messages of 64 KiB."""
        answer = b""
        for _ in range(count):
            answer = self._send({"x": "x" * 65536})
        return answer
