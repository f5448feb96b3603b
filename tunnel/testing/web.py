"""Requests for modules' pages, without a socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from twisted.internet.testing import StringTransport
from twisted.web.pages import notFound
from twisted.web.resource import Resource, getChildForRequest
from twisted.web.server import Site

from tunnel.hosting.pages import Pages

__all__ = ["Answer", "visit"]


@attrs.frozen
class Answer:
    """The response of a page."""

    status: int
    #: The header fields by name in lower case, each with its last value.
    fields: dict[str, str]
    body: bytes


class _Root(Resource):
    """Root resource that finds the resources of modules in the same way as kas."""

    isLeaf = False

    def __init__(self, pages: Pages) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._pages = pages

    def getChild(self, path: bytes, request: Any) -> Any:
        rest = [path, *request.postpath]
        mount = self._pages.find(rest)
        if mount is None:
            return notFound()
        count = len(mount.names)
        request.prepath, request.postpath = rest[:count], rest[count:]
        return getChildForRequest(mount.resource, request)


def visit(
    pages: Pages,
    path: str,
    method: str,
    body: bytes,
    fields: Mapping[str, str],
    settle: Callable[[], None],
) -> Answer:
    """
    Return the response to one request.

    :param fields: header fields by name.
    :param settle: runs pending work; called once, before the response is read.
    """
    site: Any = Site(_Root(pages))
    site.noisy = False
    transport = StringTransport()
    connection: Any = site.buildProtocol(None)
    connection.makeConnection(transport)
    head = [f"{method} {path} HTTP/1.0", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in fields.items()]
    connection.dataReceived("\r\n".join([*head, "", ""]).encode() + body)
    settle()
    answer, found, rest = transport.value().partition(b"\r\n\r\n")
    if not found:
        raise AssertionError(f"no response to {method} {path} yet")
    status, *lines = answer.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return Answer(
        int(status.split()[1]), {name.lower(): value for name, value in pairs}, rest
    )
