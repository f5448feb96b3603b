"""``/liveness``, ``/readiness`` and ``/metrics`` of agentk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from twisted.web.resource import Resource

from agentk.dialer import Dialer
from tunnel.site import QuietSite


class _Page(Resource):
    isLeaf = True

    def __init__(self, answer: Callable[[], tuple[int, str, bytes]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._answer = answer

    def render_GET(self, request: Any) -> bytes:
        """One plain page."""
        code, kind, body = self._answer()
        request.setResponseCode(code)
        request.setHeader(b"content-type", kind.encode())
        return body


def make_site(dialer: Dialer, metrics: CollectorRegistry) -> QuietSite:
    """The site of agentk's observability listener."""
    text = "text/plain; charset=utf-8"

    def liveness() -> tuple[int, str, bytes]:
        return 200, text, b"alive\n"

    def readiness() -> tuple[int, str, bytes]:
        # Ready means that bytes flow through the tunnel, not that there is a process.
        if dialer.ready:
            return 200, text, b"ready\n"
        return 503, text, f"not ready: {dialer.last_problem}\n".encode()

    def exposition() -> tuple[int, str, bytes]:
        return 200, CONTENT_TYPE_LATEST, generate_latest(metrics)

    root = Resource()
    for path, answer in (
        (b"liveness", liveness),
        (b"readiness", readiness),
        (b"metrics", exposition),
    ):
        root.putChild(path, _Page(answer))
    return QuietSite(root)
