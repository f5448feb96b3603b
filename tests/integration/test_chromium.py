"""P06, P07: a real browser with a session of GitLab, and a cluster that means harm."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import queue
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest

from kas.state import pki
from kas.state.directory import StateDirectory
from tests.fakes.gitlab import user_answer
from tests.integration import chromium
from tests.integration.processes import PATIENCE
from tests.integration.stack import Agentk, Kas
from tests.integration.test_gitlab import PAGES, GitLabProcess

#: What its user has signed in with, and what a page of GitLab knows of it.
COOKIE = "_gitlab_kas=key%2B1%3D%3D; Path=/; Secure; SameSite=None"

#: What a page tries; KAS, CLUSTER and WHO are filled in.  It knows the CSRF token that
#: no other page does: only the origin is left to tell pages apart.
_PAGE = """\
<!doctype html><title>page</title><script>
const kas = "KAS", cluster = "CLUSTER", who = "WHO", csrf = "csrf-of-key+1==";
const query = "gitlab-agent-id=7&gitlab-csrf-token=" + encodeURIComponent(csrf);
const headers = {"Gitlab-Agent-Id": "7", "X-Csrf-Token": csrf};
const found = {};
const read = async (url, options) => {
  const answer = await fetch(url, {credentials: "include", ...options});
  return [answer.status, (await answer.text()).startsWith("<script>")];
};
const open = (url, protocols) => new Promise((done, failed) => {
  const socket = new WebSocket(url.replace("https", "wss"), protocols);
  socket.onmessage = (event) => done(event.data);
  socket.onerror = failed;
});
const frame = (url) => new Promise((done) => {
  const one = document.createElement("iframe");
  const hear = (event) => { if (event.source === one.contentWindow) done("ran"); };
  window.addEventListener("message", hear);
  one.onload = () => setTimeout(() => done("loaded"), 700);
  one.src = url;
  document.body.append(one);
});
const tries = {
  "read": () => read(`${kas}/${who}/read`, {headers}),
  "read without CSRF token": () =>
    read(`${kas}/${who}/no-csrf`, {headers: {"Gitlab-Agent-Id": "7"}}),
  "read without cookie": () =>
    read(`${kas}/${who}/no-cookie`, {headers, credentials: "omit"}),
  "write": async () => (await fetch(`${kas}/${who}/write?${query}`,
    {method: "POST", mode: "no-cors", credentials: "include", body: "x"})).type,
  "socket by token": async () => {
    const target = `${kas}/${who}/socket`;
    const wants = `${target}?kas-websocket-token-request=true`;
    const answer = await fetch(wants, {credentials: "include", headers});
    const token = (await answer.json()).token;
    return open(target, ["v4.test", `websocket-token.kas.gitlab.com.${token}`]);
  },
  "socket by query": () => open(`${kas}/${who}/query?${query}`, ["v4.test"]),
  "frame of kas": () => frame(`${kas}/${who}/frame?${query}`),
  "cookies": () => document.cookie.split("; ").map((one) => one.split("=")[0]),
  "kept": () => localStorage.getItem("kept"),
  "frame of the cluster": () => frame(`${cluster}/direct/frame`),
  "cookies after that": () => document.cookie,
};
window.onload = async () => {
  localStorage.setItem("kept", "yes");
  for (const [name, attempt] of Object.entries(tries)) {
    try { found[name] = await attempt(); } catch (error) { found[name] = "blocked"; }
  }
  await fetch("/report", {method: "POST", body: JSON.stringify(found)});
};
</script><body></body>
"""


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def answer(self, kind: str, body: bytes, *fields: tuple[str, str]) -> None:
        self.send_response(200)
        for name, value in (*fields, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)


@attrs.define(eq=False)
class Server:
    """One of what is around kas, on a thread of its own."""

    handler: type[_Quiet]
    context: ssl.SSLContext | None = None
    server: ThreadingHTTPServer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        self.server.daemon_threads = True
        if self.context is not None:
            plain = self.server.socket
            self.server.socket = self.context.wrap_socket(plain, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def origin(self) -> str:
        """As browsers write it."""
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://127.0.0.1:{self.server.server_port}"


def _cluster(seen: list[str]) -> type[_Quiet]:
    """An API server that answers everybody with what a browser should not take."""

    class Cluster(_Quiet):
        def do_GET(self) -> None:
            seen.append(self.path)
            if self.headers.get("Upgrade", "").lower() == "websocket":
                self._switch()
                return
            self.answer(
                "text/html",
                b"<script>parent.postMessage('ran', '*')</script>",
                ("Set-Cookie", "evil=1; Path=/; Secure; SameSite=None"),
                ("Access-Control-Allow-Origin", "*"),
                ("Clear-Site-Data", '"cookies", "storage"'),
                ("Refresh", "0; url=https://127.0.0.1/elsewhere"),
            )

        def do_POST(self) -> None:
            # What is not read would be the beginning of the next request.
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def _switch(self) -> None:
            key = self.headers["Sec-WebSocket-Key"]
            digest = f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()
            accept = base64.b64encode(hashlib.sha1(digest).digest())
            self.wfile.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Protocol: v4.test\r\n"
                b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05hello"
            )
            self.wfile.flush()
            with contextlib.suppress(OSError):
                self.rfile.read(1)
            self.close_connection = True

    return Cluster


def _pages(who: str, page: dict[str, str], reports: queue.Queue[Any]) -> type[_Quiet]:
    """Serves one page, to a browser that has signed in."""

    class Pages(_Quiet):
        def do_GET(self) -> None:
            text = _PAGE.replace("WHO", who)
            for name, value in page.items():
                text = text.replace(name, value)
            self.answer("text/html", text.encode(), ("Set-Cookie", COOKIE))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer("text/plain", b"")
            reports.put(json.loads(body))

    return Pages


@attrs.define
class Stand:
    """What pages found, and what reached the cluster."""

    browser: Path
    folder: Path
    pages: dict[str, Server]
    reports: queue.Queue[Any]
    seen: list[str]

    def visit(self, who: str) -> dict[str, Any]:
        """What the page found."""
        page = self.pages[who].origin + "/"
        with chromium.browsing(self.browser, page, self.folder, who):
            found: dict[str, Any] = self.reports.get(timeout=PATIENCE)
        return found


@pytest.fixture
def stand(tmp_path: Path, lone_kas: Kas) -> Iterator[Stand]:
    """kas with a GitLab, a cluster, a page of GitLab and a page of somebody else."""
    browser = chromium.found()
    gitlab = GitLabProcess(tmp_path)
    gitlab.control(
        agents={"glagent-prod": {"agent_id": 7, "name": "prod", "project_id": 42}},
        users={"key+1==": user_answer(7, {"agent": {}})},
    )
    folder = StateDirectory.open(tmp_path / "pki")
    files = pki.DevelopmentPki(folder, "h", lambda: datetime.now(UTC)).ensure()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate_file, files.key_file)
    seen: list[str] = []
    reports: queue.Queue[Any] = queue.Queue()
    cluster = Server(_cluster(seen))
    # Filled in when kas has its ports.
    page = {"CLUSTER": cluster.origin}
    pages = {
        who: Server(_pages(who, page, reports), context) for who in ("gitlab", "evil")
    }
    lone_kas.settings = gitlab.settings.replace(PAGES, pages["gitlab"].origin)
    lone_kas.start()
    page["KAS"] = f"https://127.0.0.1:{lone_kas.proxy}"
    token = tmp_path / "agent.token"
    token.write_text("glagent-prod")
    token.chmod(0o600)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        f"clusters: [{{name: c, cluster: {{server: '{cluster.origin}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {}}]\n"
    )
    agentk = Agentk(lone_kas, token, kubeconfig)
    agentk.start()
    yield Stand(browser, tmp_path, pages, reports, seen)
    # It would wait for WebSockets that nobody closes.
    assert agentk.process is not None
    agentk.process.kill()
    for one in (cluster, *pages.values()):
        one.server.shutdown()
    gitlab.process.kill()


def test_page_of_gitlab(stand: Stand) -> None:
    """It reads, writes and opens WebSockets; what the cluster says stays there."""
    assert stand.visit("gitlab") == {
        "read": [200, True],
        "read without CSRF token": [401, False],
        "read without cookie": [401, False],
        "write": "opaque",
        "socket by token": "hello",
        "socket by query": "hello",
        # A page of the cluster runs no script where kas serves it.
        "frame of kas": "loaded",
        # Nothing was set, and nothing was deleted.
        "cookies": ["_gitlab_kas"],
        "kept": "yes",
        # Without kas between, all of it happens.
        "frame of the cluster": "ran",
        "cookies after that": "",
    }
    mine = [one.partition("?") for one in stand.seen if one.startswith("/gitlab/")]
    reached = {path for path, _, _ in mine}
    assert reached == {
        f"/gitlab/{name}" for name in ("read", "write", "socket", "query", "frame")
    }
    assert not any(query for _, _, query in mine)


def test_page_of_another(stand: Stand) -> None:
    """With the same cookie, and even with the CSRF token: nothing reaches a cluster."""
    found = stand.visit("evil")
    nothing = ["read", "read without CSRF token", "read without cookie"]
    nothing += ["socket by token", "socket by query"]
    assert [found[name] for name in nothing] == ["blocked"] * len(nothing)
    assert found["cookies"] == ["_gitlab_kas"]
    # It is not told what came of these.
    assert found["write"] == "opaque"
    reached = {one.partition("?")[0] for one in stand.seen if "/evil/" in one}
    # A frame is no page that asks: the browser sends no origin, and lets none read it.
    assert reached <= {"/evil/frame"}
    assert found["frame of kas"] == "loaded"
