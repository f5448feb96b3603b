"""`FakeService`: a server behind a Service of a `FakeCluster`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["FakeService"]


@attrs.define(eq=False)
class FakeService:
    """
    A server that records its requests, and responds as the test sets.

    :ivar requests: all requests in order, each a `FakeRequest`.
    :ivar status: status of the responses.
    :ivar fields: header fields of the responses.
    :ivar body: body of the responses.
    :ivar refuses: whether connections are refused.
    :ivar silent: whether requests get no response.
    :ivar missing: number of bytes of each body that never arrive.
    """

    status: int = 200
    fields: Mapping[str, str] = attrs.Factory(dict)
    body: bytes = b""
    refuses: bool = False
    silent: bool = False
    missing: int = 0
    requests: list[Any] = attrs.Factory(list)

    def take(self, request: Any) -> tuple[int, bytes]:
        """Record *request*, and return the status and body of the response."""
        self.requests.append(request)
        return self.status, self.body
