"""Modules that do what a script says, and their host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tunnel.api import IServerModule
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import ModuleHost, Prepared


class Script:
    """What each module is to do, and a record of what happened."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.apis: dict[str, list[Any]] = {}
        #: ``make one`` -> called there; may raise, or return an awaitable.
        self.does: dict[str, Callable[[], Any]] = {}

    def do(self, what: str) -> Any:
        self.happened.append(what)
        return self.does.get(what, lambda: None)()

    def take(self) -> list[str]:
        happened, self.happened = self.happened, []
        return happened


@attrs.define(eq=False)
class Api:
    name: str
    script: Script
    fail: Callable[[Exception], None]


@implementer(IServerModule)
class Scripted:
    """Does what the script says."""

    def __init__(self, api: Api) -> None:
        self.name = api.name
        self._script = api.script
        api.script.apis.setdefault(api.name, []).append(api)
        api.script.do(f"make {api.name}")

    async def start(self) -> None:
        await self._do("start")

    async def stop(self) -> None:
        await self._do("stop")

    async def _do(self, what: str) -> None:
        result = self._script.do(f"{what} {self.name}")
        if result is not None:
            await result


def no_module(api: Api) -> object:
    """Made by a factory that forgot what it is for."""
    return object()


class HostCase(SynchronousTestCase):
    """Modules that do what a script says, and their host."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.script = Script()
        self.jitter = 1.0

    def host(self, *names: str, **factories: Any) -> ModuleHost:
        prepared = [
            Prepared(name, factories.get(name, Scripted), None) for name in names
        ]

        def make_api(one: Prepared) -> Api:
            return Api(
                one.name, self.script, lambda reason: host.fail(one.name, reason)
            )

        host = ModuleHost(
            prepared,
            interface=IServerModule,
            make_api=make_api,
            release=lambda name: self.script.happened.append(f"release {name}"),
            clock=self.clock,
            jitter=lambda: self.jitter,
        )
        return host

    def started(self, *names: str) -> ModuleHost:
        host = self.host(*names)
        self.successResultOf(Deferred.fromCoroutine(host.start()))
        self.script.take()
        return host

    def fails(self, host: ModuleHost) -> tuple[str, ...]:
        starting = Deferred.fromCoroutine(host.start())
        error = self.failureResultOf(starting, ConfigurationError).value
        assert isinstance(error, ConfigurationError)
        return error.problems

    def does(self, what: str, does: Callable[[], Any]) -> None:
        self.script.does[what] = does

    def raises(self, what: str, error: Exception) -> None:
        def fail() -> None:
            raise error

        self.does(what, fail)

    def api(self, name: str) -> Api:
        """The latest API object of a module."""
        api: Api = self.script.apis[name][-1]
        return api
