"""A world to try things in, and what is said in it."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from modules.kubernetes_api.frontdoor import request_parser
from tests.modules.kubernetes_api.pair import World
from tests.tunnel.http1.wire import Wire
from tunnel import __version__
from tunnel.http1 import RequestHead

VERSION = __version__.encode()
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EXEC = (
    b"POST /api/v1/namespaces/a/pods/b/exec?command=sh&stdin=true HTTP/1.1",
    b"Connection: Upgrade",
    b"Upgrade: SPDY/3.1",
    b"Content-Length: 0",
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\n"
    b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
)


def status_of(wire: Wire) -> tuple[int, dict[str, Any], bytes]:
    """Status, the Status object, and the head of an error."""
    head, _, body = wire.taken().partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body), head


def head_of(*lines: bytes, target: bytes = b"/api") -> RequestHead:
    block = b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n"
    return request_parser(200).parse(block + b"".join(line + b"\r\n" for line in lines))


class ProxyCase(SynchronousTestCase):
    """A world to try things in, that must be clean in the end."""

    def setUp(self) -> None:
        self.world = World()

    def assert_clean(self) -> None:
        """Nothing is left of any request."""
        self.world.run()
        self.assertEqual({k: v for k, v in self.world.counts().items() if v}, {})
        self.assertEqual(self.world.link.errors, [])

    def assert_error(self, wire: Wire, code: int, *parts: str) -> bytes:
        """A Kubernetes Status whose message says *parts*; the head of the answer."""
        got, status, head = status_of(wire)
        self.assertEqual((got, status["code"]), (code, code), status)
        self.assertEqual((status["kind"], status["apiVersion"]), ("Status", "v1"))
        self.assertEqual(status["status"], "Failure")
        for part in parts:
            self.assertIn(part, status["message"])
        return head
