"""
A server of gRPC by grpcio, in a process of its own: grpcio has threads.

    python -m tests.integration.grpc_server ADDRESS [STREAMS [CERTIFICATE KEY]]

Prints the port once it listens.  SIGTERM lets calls finish.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.proto import echo_pb2
from tests.proto.echo_pb2 import Text
from tunnel.details import encode_status, error_info

ECHO = echo_pb2.DESCRIPTOR.services_by_name["Echo"]


class Echo:
    """Answers."""

    def __init__(self) -> None:
        self.produced = 0
        self.waiting = 0
        self.go_on = threading.Event()

    def say(self, request: Text, context: Any) -> Text:
        text = request.text
        if text == "wait":
            over = threading.Event()
            self.waiting += 1
            if context.add_callback(over.set):
                over.wait()
            self.waiting -= 1
        elif text == "slow":
            self.go_on.wait(20)
        elif text == "waiting":
            return Text(text=str(self.waiting))
        elif text == "produced":
            return Text(text=str(self.produced))
        elif text == "refuse":
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you: ünïcode\r\n%")
        elif text == "explain":
            details: list[AnyMessage] = [error_info("WHY", {"a": "b"})]
            context.set_trailing_metadata(
                [("grpc-status-details-bin", encode_status(details, 9, "so"))]
            )
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "so")
        elif text == "metadata":
            found = dict(context.invocation_metadata())
            context.send_initial_metadata([("note", found["from"])])
            context.set_trailing_metadata([("after", "2")])
        elif text == "crash":
            raise ZeroDivisionError("secret")
        return Text(text=text.upper())

    def spell(self, request: Text, context: Any) -> Iterator[Text]:
        count, size = map(int, request.text.split())
        for _ in range(count):
            self.produced += 1
            yield Text(text="x" * size)

    def join(self, requests: Iterator[Text], context: Any) -> Text:
        return Text(text=str(sum(len(one.text) for one in requests)))

    def chat(self, requests: Iterator[Text], context: Any) -> Iterator[Text]:
        for request in requests:
            yield Text(text=request.text.upper())
            if request.text == "bye":
                return


def main() -> None:
    """Serve until told to stop."""
    address, *more = sys.argv[1:]
    echo = Echo()
    makers = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    handlers = {
        method.name: makers[method.client_streaming, method.server_streaming](
            getattr(echo, method.name.lower()),
            request_deserializer=Text.FromString,
            response_serializer=Text.SerializeToString,
        )
        for method in ECHO.methods
    }
    options = [("grpc.max_concurrent_streams", int(more[0]))] if more else []
    server = grpc.server(ThreadPoolExecutor(50), options=options)
    generic = grpc.method_handlers_generic_handler(ECHO.full_name, handlers)
    server.add_generic_rpc_handlers((generic,))
    if len(more) > 1:
        certificate, key = (Path(one).read_bytes() for one in more[1:])
        identity = grpc.ssl_server_credentials([(key, certificate)])
        port = server.add_secure_port(address, identity)
    else:
        port = server.add_insecure_port(address)
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    server.start()
    print(f"listening on port {port}", flush=True)
    told.wait()
    stopped = server.stop(20)
    print("stopping", flush=True)
    echo.go_on.set()
    stopped.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
