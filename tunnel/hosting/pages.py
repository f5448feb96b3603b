"""The pages and WebSockets of modules by prefix: `IWeb`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import attrs
from twisted.internet.interfaces import IProtocolFactory
from twisted.logger import Logger
from twisted.web.resource import IResource, Resource
from zope.interface import implementer

from tunnel.api import AcceptedWebSocket, IWeb, WebSocketRequest
from tunnel.hosting.scope import ModuleScope
from tunnel.hosting.web_sockets import SocketCounters, WebSocketPage

__all__ = ["ModuleWeb", "Mount", "Pages"]

#: Format of a prefix, whose names consist of characters that clients do not
#: percent-encode.
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")

#: Prefix of the page for ``/`` alone.
ROOT = "/"

#: Maximum number of names in a prefix; all of them are compared with a path.
MAX_DEPTH = 8


@attrs.frozen
class Mount:
    """A resource, and the module that it belongs to."""

    owner: str
    prefix: str
    resource: IResource

    @property
    def names(self) -> tuple[bytes, ...]:
        """The parts of the prefix."""
        if self.prefix == ROOT:
            return ()
        return tuple(self.prefix[1:].encode().split(b"/"))


class ProtocolPage(Resource):
    """
    Place of a protocol among the pages.

    As a resource, it is only used if a listener cannot hand over connections.
    """

    isLeaf = True

    def __init__(self, factory: IProtocolFactory) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.factory = factory

    def render(self, request: Any) -> bytes:
        """Refuse the request."""
        request.setResponseCode(501)
        return b""


class Pages:
    """All pages of modules; one object per process."""

    def __init__(self) -> None:
        self._mounts: dict[tuple[bytes, ...], Mount] = {}
        #: Counters of WebSockets.
        self.sockets = SocketCounters()

    def mount(self, owner: str, prefix: str, resource: IResource) -> None:
        """
        Serve *resource* below *prefix*.

        :raises ValueError: see `IWeb.mount`.
        """
        if prefix == ROOT:
            self._mount_root(owner, resource)
            return
        parts = prefix.split("/")[1:]
        if _PREFIX.fullmatch(prefix) is None or {".", ".."} & set(parts):
            raise ValueError(
                f"{prefix[:200]!r} is not a prefix: /name or /several/names, of "
                "letters, digits and . _ ~ -, without a slash at the end"
            )
        if len(parts) > MAX_DEPTH:
            raise ValueError(
                f"a prefix may have at most {MAX_DEPTH} names: {prefix[:200]}"
            )
        if not IResource.providedBy(resource):
            raise ValueError(f"the page for {prefix} is not an IResource")
        made = Mount(owner, prefix, resource)
        for names, other in self._mounts.items():
            if not names:
                continue
            shorter = min(len(names), len(made.names))
            if names[:shorter] == made.names[:shorter]:
                raise ValueError(
                    f"module {owner} cannot use {prefix}, because module "
                    f"{other.owner} uses {other.prefix}"
                )
        self._mounts[made.names] = made

    def _mount_root(self, owner: str, resource: IResource) -> None:
        """Serve *resource* for the path ``/`` alone, and for nothing below it."""
        if () in self._mounts:
            raise ValueError(
                f"module {owner} cannot use {ROOT}, because module "
                f"{self._mounts[()].owner} uses it"
            )
        self._mounts[()] = Mount(owner, ROOT, resource)

    def withdraw(self, owner: str) -> None:
        """Remove the pages of a module, and close its WebSockets."""
        for one in self._mounts.values():
            if one.owner == owner and isinstance(one.resource, WebSocketPage):
                one.resource.withdraw()
        self._mounts = {
            names: one for names, one in self._mounts.items() if one.owner != owner
        }

    def of(self, owner: str) -> list[str]:
        """Return the prefixes of a module's pages."""
        return [one.prefix for one in self._mounts.values() if one.owner == owner]

    def find(self, path: Sequence[bytes]) -> Mount | None:
        """Return the page for a path, which is given as its decoded parts."""
        if list(path) in ([], [b""]):
            return self._mounts.get(())
        for count in range(1, min(len(path), MAX_DEPTH) + 1):
            found = self._mounts.get(tuple(path[:count]))
            if found is not None:
                return found
        return None

    def protocol_for(self, target: bytes) -> IProtocolFactory | None:
        """
        Return the factory of the protocol that handles a request; None if none does.

        :param target: the target of the request, as the client sent it.
        """
        mount = self.find(target.partition(b"?")[0].split(b"/")[1:])
        page = None if mount is None else mount.resource
        return page.factory if isinstance(page, ProtocolPage) else None


@implementer(IWeb)
class ModuleWeb:
    """
    Access of one module to the pages.

    :param page_origins: the origins of pages that may send requests from a user's
        browser.
    :param served: whether a listener serves the pages.
    """

    _log = Logger()

    def __init__(
        self,
        scope: ModuleScope,
        pages: Pages,
        page_origins: Collection[str] = (),
        served: bool = True,
    ) -> None:
        self._name = scope.name
        self._pages = pages
        self.page_origins = page_origins
        self._served = served
        scope.on_release(lambda: pages.withdraw(scope.name))

    def web_socket(
        self,
        prefix: str,
        accept: Callable[
            [WebSocketRequest], AcceptedWebSocket | Awaitable[AcceptedWebSocket]
        ],
    ) -> None:
        """Open WebSockets at *prefix* and below."""
        self.mount(prefix, WebSocketPage(self._name, accept, self._pages.sockets))

    def hand_over(self, prefix: str, factory: IProtocolFactory) -> None:
        """Let protocols of *factory* handle requests below *prefix*."""
        # Not worth a line of the log without a listener: the protocol has another one.
        self._pages.mount(self._name, prefix, ProtocolPage(factory))

    def mount(self, prefix: str, resource: IResource) -> None:
        """Serve *resource* below *prefix*."""
        self._pages.mount(self._name, prefix, resource)
        if not self._served:
            self._log.info(
                "module {name} has pages at {prefix}, which are not served, because "
                "'web' is not configured",
                name=self._name,
                prefix=prefix,
            )
