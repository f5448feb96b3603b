"""A Git server over smart HTTP: ``git http-backend`` behind a small HTTP server."""

from __future__ import annotations

import base64
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tools.git_repository import ENVIRONMENT

__all__ = ["GitServer"]


class GitServer:
    """
    Server of the bare repositories below *root*, on a port of 127.0.0.1.

    :ivar requests: the first lines of received requests.
    :ivar delay: seconds before each response.
    :ivar refuses: a status to send instead of Git's response.
    :ivar moved_to: a URL to which every request is redirected.
    """

    def __init__(self, root: Path, user: str = "", password: str = "") -> None:
        self.root = root
        self.requests: list[str] = []
        self.delay = 0.0
        self.refuses = 0
        self.moved_to = ""
        self._wanted = ""
        if user:
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._wanted = f"Basic {token}"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._serve(self)

            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, name: str) -> str:
        """Return the URL of the repository *name*."""
        return f"http://127.0.0.1:{self.port}/{name}"

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(request.requestline)
        size = int(request.headers.get("Content-Length") or 0)
        body = request.rfile.read(size)
        if self.delay:
            time.sleep(self.delay)
        if self.refuses:
            request.send_error(self.refuses)
            return
        if self.moved_to:
            request.send_response(302)
            request.send_header("Location", self.moved_to + request.path)
            request.end_headers()
            return
        if self._wanted and request.headers.get("Authorization") != self._wanted:
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="git"')
            request.end_headers()
            return
        path, _, query = request.path.partition("?")
        environment = {
            **ENVIRONMENT,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "REQUEST_METHOD": request.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(size),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "test",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, capture_output=True, env=environment
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = [line.partition(": ") for line in head.decode().splitlines()]
        status = next((v for k, _, v in fields if k.lower() == "status"), "200 OK")
        try:
            request.send_response(int(status[:3]))
            for name, _, value in fields:
                if name.lower() != "status":
                    request.send_header(name, value)
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)
        except OSError:
            pass  # the client has left
