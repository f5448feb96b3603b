"""Pages with the client of Rails in a real browser, and what they report."""

from __future__ import annotations

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.integration import node
from tests.integration.processes import PATIENCE

__all__ = ["Reports", "rails_scripts"]

_SOURCE = Path(__file__).parent / "action_cable"


def rails_scripts(*scripts: str) -> Path:
    """Return a folder with *scripts* and ``actioncable.esm.js``, their library."""
    folder = node.installed(_SOURCE, "@rails/actioncable", *scripts)
    library = "node_modules/@rails/actioncable/app/assets/javascripts"
    esm = folder / library / "actioncable.esm.js"
    (folder / "actioncable.esm.js").write_bytes(esm.read_bytes())
    return folder


class Reports:
    """
    What pages report, on a server of its own, which a restart of kas leaves.

    It has the page, too, which is a page of another origin then.

    :param scripts: the folder with the scripts of the page.
    :param script: the name of the one that the page runs.
    """

    def __init__(self, scripts: Path, script: str) -> None:
        self.seen: queue.Queue[dict[str, Any]] = queue.Queue()
        reports = self.seen
        page = f'<!doctype html><script type="module" src="{script}"></script>'

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.partition("?")[0].strip("/")
                self.send_response(200)
                kind = "text/javascript" if name.endswith(".js") else "text/html"
                self.send_header("Content-Type", kind)
                self.end_headers()
                if kind == "text/javascript":
                    self.wfile.write((scripts / name).read_bytes())
                else:
                    self.wfile.write(page.encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                # The page sends the next report after the response.
                reports.put(json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def next(self, what: str) -> dict[str, Any]:
        """The next report, which has to be of this kind."""
        found = self.seen.get(timeout=PATIENCE)
        assert found.pop("what") == what, found
        return found
