"""A module whose page signs users in, and keeps their sessions in memory."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
from klein import Klein
from twisted.internet.defer import maybeDeferred
from zope.interface import implementer, provider

from tunnel.api import (
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
    SignedIn,
)
from tunnel.errors import CallError

#: The dropin that makes it known.
DROPIN = """\
from tunnel.plugin import ServerModule

sign_in_test = ServerModule(
    "sign_in_test", "tests.integration.sign_in_module.SignInModule"
)
"""

PREFIX = "/sign-in-test"


@attrs.frozen(kw_only=True)
class SignInModuleConfiguration:
    """``modules.sign_in_test``."""

    base: str = ""


@provider(IServerModuleFactory)
@implementer(IServerModule)
class SignInModule:
    """Pages below ``/sign-in-test``; the parameter ``as`` names the session."""

    configuration = SignInModuleConfiguration
    app: Any = Klein()

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._users = api.users
        self._base = api.configuration.base + PREFIX
        self._back = f"{self._base}/callback"
        #: The name of the session and the secret, by the state of a sign-in.
        self._begun: dict[str, tuple[str, bytes]] = {}
        self._sessions: dict[str, bytes] = {}
        api.web.mount(PREFIX, self.app.resource())

    async def start(self) -> None:
        """Nothing."""

    async def stop(self) -> None:
        """Nothing."""

    @property
    def _provider(self) -> Any:
        (found,) = self._users.sign_in_providers
        return found

    @app.route("/in")
    async def begin(self, request: Any) -> bytes:
        begun = await self._provider.begin(self._back)
        self._begun[begun.state] = _parameters(request)["as"], begun.secret
        request.redirect(begun.url.encode())
        return b""

    @app.route("/callback")
    async def finish(self, request: Any) -> bytes:
        answer = _parameters(request)
        name, secret = self._begun.pop(answer["state"])
        work = self._provider.finish(secret, answer["state"], answer, self._back)
        return await self._answer(request, lambda: self._keep(name, work))

    @app.route("/who")
    async def who(self, request: Any) -> bytes:
        name = _parameters(request)["as"]
        if name not in self._sessions:
            request.setResponseCode(401)
            return b"{}"
        return await self._answer(request, lambda: self._about(name))

    @app.route("/renew")
    async def renew(self, request: Any) -> bytes:
        name = _parameters(request)["as"]
        work = self._provider.renew(SignedIn.from_bytes(self._sessions[name]))
        return await self._answer(request, lambda: self._keep(name, work))

    @app.route("/out")
    async def end(self, request: Any) -> bytes:
        stored = self._sessions.pop(_parameters(request)["as"])
        signed_in = SignedIn.from_bytes(stored)
        url = await self._provider.end_url(signed_in, f"{self._base}/bye")
        request.redirect(url.encode())
        return b""

    @app.route("/bye")
    def bye(self, request: Any) -> bytes:
        return b"You are signed out."

    @app.route("/logged-out", methods=["POST"])
    async def logged_out(self, request: Any) -> bytes:
        token = request.args[b"logout_token"][0].decode()
        gone = await self._provider.logged_out(token)
        for name, stored in list(self._sessions.items()):
            if gone.ends(SignedIn.from_bytes(stored)):
                del self._sessions[name]
        return b""

    async def _keep(self, name: str, work: Awaitable[SignedIn]) -> Mapping[str, object]:
        self._sessions[name] = (await work).to_bytes()
        return await self._about(name)

    async def _about(self, name: str) -> Mapping[str, object]:
        found = SignedIn.from_bytes(self._sessions[name])
        authorize: Any = self._users.authorize
        access = await maybeDeferred(authorize, found.kind, "main", found.token)
        return {**attrs.asdict(found), "username": access.impersonation.username}

    async def _answer(
        self, request: Any, work: Callable[[], Awaitable[Mapping[str, object]]]
    ) -> bytes:
        try:
            found = await work()
        except CallError as error:
            request.setResponseCode(401)
            found = {"status": error.status.name, "reason": error.message}
        return json.dumps(found).encode()


def _parameters(request: Any) -> dict[str, str]:
    return {name.decode(): one[-1].decode() for name, one in request.args.items()}
