"""
A collector of OpenTelemetry, and Sentry's door: what they are sent, decoded.

Spans come as the messages of the OTLP protocol (``POST /v1/traces``), errors in
Sentry's envelopes (``POST /api/<project>/envelope/``).  What is neither gets 404.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import attrs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

__all__ = ["Telemetry", "TracedSpan"]


@attrs.frozen
class TracedSpan:
    """One span as a collector has it; ids are in hexadecimal."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    #: 0: nothing said; 2: an error.
    status: int
    message: str


class Telemetry:
    """
    Listens on a port of 127.0.0.1, from `start` to `stop`.

    :ivar refuses: the status that everything gets; 0: it is taken.
    :ivar moved: the URL that everything is sent on to, with `refuses`; empty: none.
    """

    def __init__(self) -> None:
        self.spans: list[TracedSpan] = []
        #: Events of Sentry.
        self.errors: list[dict[str, Any]] = []
        #: Header fields of what came, by lower-case names.
        self.headers: list[dict[str, str]] = []
        self.refuses = 0
        self.moved = ""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Take what comes."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """One request; the status of its answer."""
        self.headers.append(headers)
        if self.refuses:
            return self.refuses
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if path == "/v1/traces":
            self._take_spans(ExportTraceServiceRequest.FromString(body))
        elif path.startswith("/api/") and path.endswith("/envelope/"):
            self._take_errors(body)
        else:
            return 404
        return 200

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            said = {
                one.key: one.value.string_value for one in resource.resource.attributes
            }
            for scope in resource.scope_spans:
                self.spans += [_span(said["service.name"], one) for one in scope.spans]

    def _take_errors(self, body: bytes) -> None:
        # https://develop.sentry.dev/sdk/data-model/envelopes/
        lines = body.split(b"\n")
        for header, payload in zip(lines[1::2], lines[2::2], strict=False):
            if json.loads(header or b"{}").get("type") == "event":
                self.errors.append(json.loads(payload))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        telemetry = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fields = {name.lower(): value for name, value in self.headers.items()}
                self.send_response(telemetry.take(self.path, fields, body))
                if telemetry.moved:
                    self.send_header("Location", telemetry.moved)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _span(service: str, one: Any) -> TracedSpan:
    values = {
        attribute.key: getattr(
            attribute.value, attribute.value.WhichOneof("value") or "string_value"
        )
        for attribute in one.attributes
    }
    return TracedSpan(
        service,
        one.name,
        one.trace_id.hex(),
        one.span_id.hex(),
        one.parent_span_id.hex(),
        values,
        one.status.code,
        one.status.message,
    )
