"""A module as third parties write it: a klein app on kas' listener, and a store."""

from __future__ import annotations

import json
from typing import Any

import attrs
from klein import Klein
from twisted.internet.defer import Deferred
from zope.interface import implementer, provider

from tunnel.api import IServerModule, IServerModuleApi, IServerModuleFactory
from tunnel.errors import CallError, Status

#: The dropins that make it known, twice.
DROPIN = """\
from tunnel.plugin import ServerModule

pages = ServerModule("pages", "tests.integration.pages_module.PagesModule")
rival = ServerModule("rival", "tests.integration.pages_module.PagesModule")
"""


@attrs.frozen(kw_only=True)
class PagesConfiguration:
    """``modules.pages``."""

    prefix: str = "/pages"


@provider(IServerModuleFactory)
@implementer(IServerModule)
class PagesModule:
    """A counter that is kept, and ways to fail."""

    configuration = PagesConfiguration
    app: Any = Klein()

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._api = api
        self._store = api.store("counters")
        api.web(api.configuration.prefix, self.app.resource())

    async def start(self) -> None:
        """The store can be used from here on."""
        self._last = b""
        try:
            found = await self._store.get("stopped")
            self._last = found.value if found else b""
            await self._store.set("stopped", b"not yet")
        except CallError as error:
            if error.status != Status.DATA_LOSS:
                raise

    async def stop(self) -> None:
        """The store is still there."""
        await self._store.set("stopped", b"well")

    @app.route("/count/<name>", methods=["POST"])
    async def count(self, request: Any, name: str) -> bytes:
        """One more; the number after it."""
        while True:
            found = await self._store.get(name)
            count = int(found.value) + 1 if found else 1
            version = found.version if found else 0
            try:
                await self._store.set(name, b"%d" % count, version=version)
            except CallError as error:
                if error.status != Status.ABORTED:
                    raise
            else:
                return b"%d" % count

    @app.route("/last", methods=["GET"])
    def last(self, request: Any) -> bytes:
        """How the module before this one ended."""
        return self._last

    @app.route("/keys", methods=["GET"])
    async def keys(self, request: Any) -> bytes:
        """All of them."""
        request.setHeader(b"content-type", b"application/json")
        found = [key async for page in self._store.keys() for key in page]
        return json.dumps(found).encode()

    @app.route("/link", methods=["GET"])
    def link(self, request: Any) -> str:
        """Where a page of this app is, as a client reaches it."""
        text: str = request.URLPath().child(b"x").__str__()
        return text

    @app.route("/slow", methods=["GET"])
    async def slow(self, request: Any) -> bytes:
        """Takes its time."""
        pause: Deferred[None] = Deferred()
        self._api.clock.callLater(1.5, pause.callback, None)
        request.write(b"begun\n")
        await pause
        return b"ended\n"

    @app.route("/crash", methods=["GET"])
    def crash(self, request: Any) -> bytes:
        """Fails."""
        raise ZeroDivisionError("secret")

    @app.route("/fail", methods=["GET"])
    def fail(self, request: Any) -> bytes:
        """The module fails, and is made again."""
        self._api.fail(RuntimeError("told to"))
        return b"failed"
