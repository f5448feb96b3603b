"""What kasctl asks, as far as it sees it."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


class _Observability(http.server.BaseHTTPRequestHandler):
    answers: dict[str, tuple[int, bytes]] = {
        "/status": (
            200,
            b'{"version": "1", "ready": true, "modules": {"echo": "running"}, '
            b'"agents": [{"agent_name": "prod", "alive": true, "pod_name": ""}]}',
        ),
        "/liveness": (200, b""),
        "/readiness": (503, b"not ready: starting"),
    }

    def do_GET(self) -> None:
        code, body = self.answers.get(self.path, (404, b"nothing"))
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def observability() -> Iterator[str]:
    """An HTTP server that says what kas says."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Observability) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


@contextmanager
def agent_listener(certificate: Path, key: Path, alpn: str) -> Iterator[str]:
    """One TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols([alpn])

    def serve() -> None:
        try:
            plain, _ = server.accept()
            with plain, context.wrap_socket(plain, server_side=True) as secure:
                secure.recv(1)
        except OSError:
            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


def free_address() -> str:
    (address,) = free_addresses(1)
    return address


def free_addresses(count: int) -> list[str]:
    """Different ones: each is taken until all are known."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in servers]
