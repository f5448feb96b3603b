"""Ports that modules open, which close when their module stops."""

from __future__ import annotations

import ssl
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from zope.interface import implementer

from tunnel.api import IListeners
from tunnel.hosting.scope import ModuleScope
from tunnel.program.listening import Listening

__all__ = ["ModuleListeners", "ModulePorts"]


class ModulePorts:
    """Table of the ports that modules have opened, by module."""

    def __init__(self, listening: Listening) -> None:
        self.listening = listening
        self._ports: dict[str, list[IListeningPort]] = {}

    def add(self, module: str, port: IListeningPort) -> None:
        """Record a port that a module has opened."""
        self._ports.setdefault(module, []).append(port)

    async def close(self) -> None:
        """Close all ports, so that no client connects any more."""
        for ports in tuple(self._ports.values()):
            for port in ports:
                await self.listening.close(port)

    def release(self, module: str) -> None:
        """Close the ports of a module."""
        for port in self._ports.pop(module, []):
            Deferred.fromCoroutine(self.listening.close(port))


@implementer(IListeners)
class ModuleListeners:
    """Implementation of `IListeners` for one module."""

    def __init__(self, scope: ModuleScope, ports: ModulePorts) -> None:
        self._scope = scope
        self._ports = ports
        scope.on_release(lambda: ports.release(scope.name))

    def listen(
        self, endpoint: Any, factory: Any, path: str = ""
    ) -> Deferred[IListeningPort]:
        """Listen until the module stops."""
        scope = self._scope
        key = _key_of(scope.configuration, endpoint)
        setting = f"{scope.path}.{key}.address" if key and scope.path else ""

        async def opened() -> IListeningPort:
            port = await self._ports.listening.listen(
                endpoint,
                factory,
                what=scope.name,
                setting=setting,
                alpn=("http/1.1",),
                # Permit TLS 1.2, because kubectl and other HTTP clients may not support
                # 1.3 yet.
                minimum=ssl.TLSVersion.TLSv1_2,
                path=path,
            )
            self._ports.add(scope.name, port)
            return port

        return Deferred.fromCoroutine(opened())


def _key_of(configuration: Any, endpoint: Any) -> str:
    """Return the key of a listener in a section; empty if the section has none."""
    if not attrs.has(type(configuration)):
        return ""
    for one in attrs.fields(type(configuration)):
        if getattr(configuration, one.name) is endpoint:
            return str(one.name)
    return ""
