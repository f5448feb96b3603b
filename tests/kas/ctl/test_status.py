"""kasctl status, as an operator meets it."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest

from kas.ctl import status
from kas.state import pki, running
from kas.state.directory import StateDirectory
from tests.kas.ctl.kasctl import Kasctl
from tests.kas.ctl.listeners import agent_listener, free_address, observability
from tunnel.program.opened import Opened


class TestStatus:
    """status"""

    def test_of_a_running_kas(self, kasctl: Kasctl) -> None:
        with observability() as address:
            url = ("--url", f"http://{address}")
            assert kasctl.ok("status", *url).splitlines() == [
                "version: 1",
                "ready: yes",
                "modules:",
                "  echo: running",
                "agents: 1",
                "  agent_name=prod alive=yes",
            ]
            assert kasctl.data("status", *url)["ready"] is True
            state = StateDirectory.open(kasctl.state)
            running.tell(state, [Opened("health and metrics", address)])
            assert kasctl.data("status")["ready"] is True
            said = kasctl.fails("status", "--url", f"http://{address}/other")
            assert "is that kas?" in said
            running.leave(state)
            result = kasctl.run("status")
            assert "is stopping, and finishes running requests" in result.stderr
            assert "ready: yes" in result.stdout
            running.tell(state, [Opened("health and metrics", "/run/kas.sock")])
            assert "pass its URL with --url" in kasctl.fails("status")

    def test_when_kas_does_not_run(self, kasctl: Kasctl) -> None:
        said = kasctl.fails("status", "--url", f"http://{free_address()}")
        assert "is it running" in said
        for url in ("nonsense", "http://h:x", "ftp://h"):
            assert "is not a URL" in kasctl.fails("status", "--url", url)

    def test_when_none_runs_here(
        self, kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The state directory is named: most likely it is another one."""
        free_default = f"http://{free_address()}"
        monkeypatch.setattr(status, "DEFAULT_URL", free_default)
        said = kasctl.fails("status")
        assert f"no kas runs with the state directory {kasctl.state} " in said
        assert f"kas does not respond at {free_default}" in said


class _Api(http.server.BaseHTTPRequestHandler):
    """An external API, as far as kasctl sees it."""

    answer: tuple[int, bytes] = (200, b"{}")
    asked: list[tuple[str, str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, self.headers["Authorization"]))
        code, body = self.answer
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class TestAgentsOfStatus:
    """status --server"""

    CONNECTED = {
        "agents": [
            {
                "agentName": "prod",
                "agentId": "1",
                "connectedAt": "2026-01-02T03:04:05.678Z",
                "meta": {
                    "version": "1.2",
                    "podNamespace": "ns",
                    "podName": "pod",
                    "kubernetesVersion": {"gitVersion": "v1.36.1"},
                },
            },
            {"agentName": "dev", "agentId": "2"},
        ]
    }

    @pytest.fixture
    def server(self, kasctl: Kasctl) -> Iterator[tuple[str, ...]]:
        """The options for a server that answers `_Api.answer`."""
        secret = kasctl.path / "secret"
        secret.write_bytes(base64.b64encode(bytes(32)))
        with http.server.HTTPServer(("127.0.0.1", 0), _Api) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                url = f"http://127.0.0.1:{server.server_port}"
                yield ("--server", url, "--secret-file", str(secret))
            finally:
                server.shutdown()
                thread.join(10)

    def test_agents(self, kasctl: Kasctl, server: tuple[str, ...]) -> None:
        _Api.answer = (200, json.dumps(self.CONNECTED).encode())
        head, prod, dev = kasctl.ok("status", *server).splitlines()
        assert head.split()[:3] == ["AGENT", "ID", "POD"]
        shown = ["prod", "1", "ns/pod", "1.2", "v1.36.1", "2026-01-02T03:04:05Z"]
        assert prod.split() == shown
        assert dev.split()[:3] == ["dev", "2", "-"]
        assert kasctl.data("status", *server) == self.CONNECTED
        path, bearer = _Api.asked[-1]
        assert path == "/txkas.agent_tracker.v1.Agents/List"
        claims = jwt.decode(
            bearer.removeprefix("Bearer "), bytes(32), ["HS256"], audience="gitlab-kas"
        )
        assert claims["iss"] == "gitlab"

    def test_nothing(self, kasctl: Kasctl, server: tuple[str, ...]) -> None:
        _Api.answer = (200, b"{}")
        assert kasctl.ok("status", *server).strip() == "no agent is connected"
        assert kasctl.data("status", *server) == {"agents": []}

    def test_problems(self, kasctl: Kasctl, server: tuple[str, ...]) -> None:
        _Api.answer = (401, b'{"code": "unauthenticated", "message": "JWT: no"}')
        assert "refused: JWT: no" in kasctl.fails("status", *server)
        _Api.answer = (501, b'{"code": "unimplemented", "message": "/a/B"}')
        assert "does not enable the module," in kasctl.fails("status", *server)
        _Api.answer = (501, b'{"code": "unimplemented", "message": "/x.gitops.v1.A/B"}')
        assert "enable the module (agent.gitops)," in kasctl.fails("status", *server)
        _Api.answer = (200, b"<html>")
        assert "is that kas?" in kasctl.fails("status", *server)
        assert "--secret-file" in kasctl.fails("status", *server[:2])
        away = ("--server", f"http://{free_address()}", *server[2:])
        assert "is it running" in kasctl.fails("status", *away)
        for url in ("nonsense", "http://h:x", "ftp://h"):
            said = kasctl.fails("status", "--server", url, *server[2:])
            assert "is not a URL" in said
        Path(server[3]).write_text("short")
        assert "base64" in kasctl.fails("status", *server)

    def test_from_configuration(self, kasctl: Kasctl, server: tuple[str, ...]) -> None:
        _Api.answer = (200, b"{}")
        file = kasctl.path / "kas.yaml"
        address = server[1].removeprefix("http://")
        file.write_text(
            f"api: {{listen: {{address: '{address}', "
            f"authentication_secret_file: {server[3]}}}}}"
        )
        said = kasctl.ok("status", "--configuration-file", str(file))
        assert said.strip() == "no agent is connected"
        with observability() as address:
            file.write_text(f"observability: {{listen: {{address: '{address}'}}}}")
            said = kasctl.ok("status", "--configuration-file", str(file))
            assert said.startswith("version: 1")

    def test_whoever_answers_cannot_touch_the_terminal(
        self, kasctl: Kasctl, server: tuple[str, ...]
    ) -> None:
        said = json.dumps({"message": "\x1b[2Jno\n" + 3000 * "x"}).encode()
        _Api.answer = (401, said)
        shown = kasctl.fails("status", *server)
        assert "\x1b" not in shown
        assert r"refused: \x1b[2Jno\nxx" in shown
        assert len(shown) < 2100
        agents = {"agents": [{"agentName": "a\x1b]0;b", "agentId": "1"}]}
        _Api.answer = (200, json.dumps(agents).encode())
        assert "\x1b" not in kasctl.ok("status", *server)

    def test_tls_here_and_not_there(
        self, kasctl: Kasctl, server: tuple[str, ...]
    ) -> None:
        url = server[1].replace("http:", "https:")
        said = kasctl.fails("status", "--server", url, *server[2:])
        assert "write http://" in said

    @pytest.mark.parametrize(
        ("scheme", "hint"), [("https", "--ca-file"), ("http", "write https://")]
    )
    def test_tls_there(
        self, kasctl: Kasctl, server: tuple[str, ...], scheme: str, hint: str
    ) -> None:
        state = StateDirectory.open(kasctl.state)
        files = pki.DevelopmentPki(state, "h", lambda: datetime.now(UTC)).ensure()
        with agent_listener(files.certificate_file, files.key_file, "h2") as address:
            url = ("--server", f"{scheme}://{address}")
            assert hint in kasctl.fails("status", *url, *server[2:])

    def test_token(self, kasctl: Kasctl, server: tuple[str, ...]) -> None:
        file = server[2:]
        token = kasctl.ok("token", *file, "--issuer", "me", "--lifetime", "90s").strip()
        claims = jwt.decode(token, bytes(32), ["HS256"], audience="gitlab-kas")
        assert claims["iss"] == "me"
        assert 85 < claims["exp"] - datetime.now(UTC).timestamp() < 95
        assert set(kasctl.data("token", *file)) == {"token"}
        for lifetime in ("0s", "61m"):
            said = kasctl.fails("token", *file, "--lifetime", lifetime)
            assert "at most 1h" in said
        Path(file[1]).write_text("short")
        assert "base64" in kasctl.fails("token", *file)
