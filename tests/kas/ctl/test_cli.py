"""kasctl as an operator meets it."""

from __future__ import annotations

import base64
import http.server
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import jwt
import pytest
import yaml
from click.testing import CliRunner, Result

from kas import pki, running
from kas.ctl.cli import cli
from kas.ctl.common import token_target
from kas.identity_store import IdentityStore, digest
from kas.state import StateDirectory
from tunnel.errors import ConfigurationError
from tunnel.listening import Opened
from tunnel.net.tls import ALPN_TUNNEL


class Kasctl:
    """Runs commands on a state directory of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state"

    def run(self, *arguments: str) -> Result:
        line = [*arguments, "--state-directory", str(self.state)]
        return CliRunner().invoke(cli, line, catch_exceptions=False)

    def ok(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def data(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--output", "json"))

    def fails(self, *arguments: str, code: int = 1) -> str:
        result = self.run(*arguments)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        return result.stderr

    def store(self) -> IdentityStore:
        return IdentityStore(StateDirectory.open(self.state), lambda: datetime.now(UTC))

    def kubeconfig(self, *arguments: str) -> Any:
        return yaml.safe_load(self.ok("kubeconfig", *arguments))


@pytest.fixture
def kasctl(tmp_path: Path) -> Kasctl:
    return Kasctl(tmp_path)


class TestEveryCommand:
    """What all of them share."""

    def leaves(self, group: click.Group) -> Iterator[click.Command]:
        for found in group.commands.values():
            if isinstance(found, click.Group):
                yield from self.leaves(found)
            else:
                yield found

    def test_options(self) -> None:
        commands = list(self.leaves(cli))
        assert len(commands) == 18
        for found in commands:
            names = {name for option in found.params for name in option.opts}
            assert {"--output", "--state-directory"} <= names, found.name
            assert found.help

    def test_a_problem_is_no_traceback(self, kasctl: Kasctl) -> None:
        kasctl.state.mkdir()
        kasctl.state.chmod(0o777)
        assert "chmod 700" in kasctl.fails("agent", "list")
        result = kasctl.run("agent", "list", "--output", "json")
        assert result.exit_code == 1
        assert "chmod 700" in json.loads(result.stdout)["problems"][0]

    def test_as_a_program(self, tmp_path: Path) -> None:
        code = "from kas.ctl import main; main()"
        environ = {**os.environ, "STATE_DIRECTORY": str(tmp_path / "state")}
        done = subprocess.run(
            [sys.executable, "-c", code, "agent", "add", "prod"],
            capture_output=True,
            text=True,
            env=environ,
            check=True,
        )
        # only the token: "kasctl agent add prod > token" has to work
        assert done.stdout.startswith("kasagent-")
        assert done.stdout.count("\n") == 1
        assert "shown only this once" in done.stderr


class TestAgents:
    """agent ..."""

    def test_add_and_list(self, kasctl: Kasctl) -> None:
        token = kasctl.ok("agent", "add", "prod").strip()
        (kept,) = kasctl.store().load().agents[0].tokens
        assert digest(token.encode()).hex() == kept.sha256
        listed = kasctl.ok("agent", "list")
        assert listed.splitlines()[0].split() == [
            "ID",
            "NAME",
            "PROJECT",
            "STATE",
            "TOKENS",
            "CREATED",
        ]
        assert listed.splitlines()[1].split()[:5] == [
            "1",
            "prod",
            "none",
            "active",
            "1",
        ]
        assert token.split("-", 2)[2] not in listed

    def test_json(self, kasctl: Kasctl) -> None:
        added = kasctl.data("agent", "add", "prod")
        assert (added["agent"]["id"], added["agent"]["name"]) == ("1", "prod")
        assert added["token"].startswith("kasagent-")
        (listed,) = kasctl.data("agent", "list")
        assert listed == added["agent"]
        assert "sha256" not in json.dumps(listed)

    def test_project(self, kasctl: Kasctl) -> None:
        added = kasctl.data("agent", "add", "prod", "--project-id", "42")
        assert added["agent"]["project_id"] == 42
        kasctl.ok("agent", "add", "test")
        listed = kasctl.data("agent", "list")
        assert [one["project_id"] for one in listed] == [42, None]
        columns = [line.split() for line in kasctl.ok("agent", "list").splitlines()]
        assert [line[2] for line in columns] == ["PROJECT", "42", "none"]
        for wrong in ("0", "-1", "x", str(2**63)):
            arguments = ("agent", "add", "other", "--project-id", wrong)
            assert "--project-id" in kasctl.fails(*arguments, code=2)

    def test_token_file(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "token"
        out = kasctl.data("agent", "add", "prod", "--token-file", str(file))
        assert "token" not in out
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        first = file.read_text()
        assert first.startswith("kasagent-")
        kasctl.ok("agent", "rotate", "prod", "--token-file", str(file))
        assert file.read_text() != first
        assert sorted(os.listdir(kasctl.path)) == ["state", "token"]

    def test_what_is_said(self, kasctl: Kasctl) -> None:
        said = kasctl.run("agent", "add", "prod").stderr
        assert "agent prod has the id 1; its token:\n" in said
        file = kasctl.path / "token"
        result = kasctl.run("agent", "add", "test", "--token-file", str(file))
        assert result.stdout == f"agent test has the id 2; its token is in {file}\n"
        assert "its token:" not in result.stderr
        help_ = " ".join(kasctl.ok("agent", "rotate", "--help").split())
        assert "[default: 24h]" in help_

    def test_a_token_file_that_cannot_be_written(self, kasctl: Kasctl) -> None:
        said = kasctl.fails("agent", "add", "prod", "--token-file", "/none/token")
        assert "no token was made" in said
        assert not kasctl.state.exists()

    def test_a_token_file_after_a_failure(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError):
            with token_target(tmp_path / "token"):
                raise ConfigurationError(["no"])
        assert os.listdir(tmp_path) == []

    def test_agentk_may_start_first(self, kasctl: Kasctl) -> None:
        said = kasctl.run("agent", "add", "prod").stderr
        authority = kasctl.state / "ca.crt"
        assert f"--ca-cert-file {authority}" in said
        before = authority.read_bytes()
        assert b"BEGIN CERTIFICATE" in before
        kasctl.ok("agent", "add", "test")
        assert authority.read_bytes() == before

    def test_an_own_certificate(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        (kasctl.state / "ca.crt").unlink()
        assert "--ca-cert-file" not in kasctl.run("agent", "add", "test").stderr
        (kasctl.state / "server.key").unlink()
        result = kasctl.run("agent", "add", "dev")
        assert result.exit_code == 0
        assert result.stdout.startswith("kasagent-")
        assert "server.key" in result.stderr

    def test_rotate_revoke_remove(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        rotated = kasctl.data("agent", "rotate", "prod", "--grace", "1h")
        assert len(rotated["agent"]["tokens"]) == 2
        rotated = kasctl.data("agent", "rotate", "prod", "--grace", "0")
        assert len(rotated["agent"]["tokens"]) == 1
        assert kasctl.data("agent", "revoke", "prod")["agent"]["revoked_at"]
        assert kasctl.data("agent", "list")[0]["tokens"] == []
        kasctl.ok("agent", "remove", "1")
        assert kasctl.data("agent", "list") == []

    def test_mistakes(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        assert "did you mean 'prod'?" in kasctl.fails("agent", "revoke", "prd")
        said = kasctl.fails("agent", "rotate", "prod", "--grace", "5", code=2)
        assert "write the unit: 5s" in said


class TestUsers:
    """user ..."""

    def test_add_and_list(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        kasctl.ok("user", "add", "bob", "--agent", "*", "--as-agent")
        added = kasctl.data(
            *("user", "add", "alice", "--agent", "prod", "--expires", "8h"),
            *("--as", "alice@example.org", "--group", "dev", "--group", "ops"),
        )
        assert added["user"]["as"] == "alice@example.org"
        assert added["user"]["groups"] == ["dev", "ops"]
        created = datetime.fromisoformat(added["user"]["created_at"])
        expires = datetime.fromisoformat(added["user"]["expires_at"])
        assert (expires - created).total_seconds() == 8 * 3600
        listed = kasctl.ok("user", "list")
        assert "alice@example.org, group dev, group ops" in listed
        assert "agentk itself" in listed
        kasctl.ok("user", "revoke", "alice")
        states = {u["name"]: u["revoked_at"] for u in kasctl.data("user", "list")}
        assert states["alice"]
        assert states["bob"] is None

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("--agent", "prod"), "say with whose rights"),
            (("--agent", "prod", "--as-agent", "--as", "x"), "goes without --as"),
            (("--agent", "prod", "--group", "x"), "--group needs --as"),
            ((), "Missing option '--agent'"),
        ],
    )
    def test_usage(self, kasctl: Kasctl, arguments: tuple[str, ...], says: str) -> None:
        kasctl.ok("agent", "add", "prod")
        assert says in kasctl.fails("user", "add", "alice", *arguments, code=2)

    def test_grant_and_ungrant(self, kasctl: Kasctl) -> None:
        for name in ("prod", "test", "dev"):
            kasctl.ok("agent", "add", name)
        kasctl.ok("user", "add", "alice", "--agent", "prod", "--as-agent")
        said = kasctl.ok(*"user grant alice --agent 2 --agent dev --agent prod".split())
        assert said == "user alice may reach: prod, test, dev\n"
        left = kasctl.data(*"user ungrant alice --agent prod --agent dev".split())
        assert left["user"]["agents"] == ["test"]
        said = kasctl.fails(*"user ungrant alice --agent prod".split())
        assert "may not reach the agent 'prod' anyway" in said
        said = kasctl.ok("user", "grant", "alice", "--agent", "*")
        assert said == "user alice may reach: every agent\n"
        said = kasctl.fails(*"user ungrant alice --agent prod".split())
        assert "one cannot be taken out of that" in said
        said = kasctl.ok("user", "ungrant", "alice", "--agent", "*")
        assert said == "user alice may reach: none\n"
        for command in ("grant", "ungrant"):
            for who, agent in (("alic", "prod"), ("alice", "prd")):
                said = kasctl.fails("user", command, who, "--agent", agent)
                assert "did you mean" in said
        kasctl.ok("user", "revoke", "alice")
        assert "is revoked" in kasctl.fails(*"user grant alice --agent prod".split())

    def test_remove(self, kasctl: Kasctl) -> None:
        kasctl.ok("user", "add", "alice", "--agent", "*", "--as-agent")
        kasctl.ok("user", "add", "bob", "--agent", "*", "--as-agent")
        assert kasctl.ok("user", "remove", "alice") == "user alice is removed\n"
        assert [one["name"] for one in kasctl.data("user", "list")] == ["bob"]
        assert "there is no user 'alice'" in kasctl.fails("user", "remove", "alice")

    def test_unknown_agent(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        said = kasctl.fails("user", "add", "alice", "--agent", "pord", "--as-agent")
        assert "did you mean 'prod'?" in said


class TestKubeconfig:
    """kubeconfig"""

    @pytest.fixture(autouse=True)
    def agents(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        kasctl.ok("agent", "add", "test")

    def token(self, content: Any) -> str:
        token: str = content["users"][0]["user"]["token"]
        return token

    def test_works_before_kas_ever_ran(self, kasctl: Kasctl) -> None:
        content = kasctl.kubeconfig("--agent", "test")
        cluster = content["clusters"][0]["cluster"]
        assert cluster["server"] == "https://127.0.0.1:8154"
        authority = base64.b64decode(cluster["certificate-authority-data"])
        assert authority == (kasctl.state / "ca.crt").read_bytes()
        assert content["current-context"] == content["contexts"][0]["name"] == "test"
        kind, agent, token = self.token(content).split(":")
        assert (kind, agent) == ("user", "2")
        (user,) = kasctl.store().load().users
        assert user.name == "kubectl-test"
        assert digest(token.encode()).hex() == user.token.sha256

    def test_json_is_a_kubeconfig_too(self, kasctl: Kasctl) -> None:
        content = kasctl.data("kubeconfig", "--agent", "prod")
        assert content["kind"] == "Config"

    def test_a_user_that_is_there(self, kasctl: Kasctl) -> None:
        first = self.token(kasctl.kubeconfig("--agent", "prod"))
        said = kasctl.fails("kubeconfig", "--agent", "prod")
        assert "--rotate" in said
        assert "--token-file" in said
        second = self.token(kasctl.kubeconfig("--agent", "prod", "--rotate"))
        assert first != second
        assert len(kasctl.store().load().users) == 1
        said = kasctl.fails(
            "kubeconfig", "--agent", "prod", "--rotate", "--as", "somebody"
        )
        assert "keeps the rights it has" in said

    def test_rights_of_a_new_user(self, kasctl: Kasctl) -> None:
        kasctl.ok("kubeconfig", "--agent", "prod", "--as", "alice", "--user", "a")
        (user,) = kasctl.store().load().users
        assert user.impersonation is not None
        assert user.impersonation.username == "alice"

    def test_no_way_around_what_a_user_may_reach(self, kasctl: Kasctl) -> None:
        kasctl.ok("user", "add", "alice", "--agent", "prod", "--as-agent")
        before = kasctl.store().load()
        said = kasctl.fails(
            "kubeconfig", "--agent", "test", "--user", "alice", "--rotate"
        )
        assert "may not reach the agent 'test'; it may reach: prod" in said
        assert kasctl.store().load() == before

    def test_from_a_token_file(self, kasctl: Kasctl) -> None:
        file = str(kasctl.path / "token")
        kasctl.ok(
            *("user", "add", "alice", "--agent", "prod", "--as-agent"),
            *("--token-file", file),
        )
        before = kasctl.store().load()
        content = kasctl.kubeconfig("--agent", "prod", "--token-file", file)
        token = Path(file).read_text().strip()
        assert self.token(content) == f"user:1:{token}"
        assert kasctl.store().load() == before
        for arguments, says in (
            (("--agent", "test"), "may not reach"),
            (("--agent", "prod", "--user", "bob"), "of 'alice', not of 'bob'"),
        ):
            said = kasctl.fails("kubeconfig", *arguments, "--token-file", file)
            assert says in said
            assert token not in said

    def test_revoked(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "token"
        kasctl.ok(
            *("user", "add", "alice", "--agent", "prod", "--as-agent"),
            *("--token-file", str(file)),
        )
        kasctl.ok("user", "revoke", "alice")
        before = kasctl.store().load()
        arguments = ("kubeconfig", "--agent", "prod")
        for more in ((), ("--rotate",), ("--as", "x")):
            said = kasctl.fails(*arguments, "--user", "alice", *more)
            assert "the user 'alice' was revoked" in said
        said = kasctl.fails(*arguments, "--token-file", str(file))
        assert "the user 'alice' is revoked" in said
        assert kasctl.store().load() == before
        kasctl.ok("agent", "revoke", "prod")
        before = kasctl.store().load()
        assert "the agent 'prod' is revoked" in kasctl.fails(*arguments)
        assert kasctl.store().load() == before

    def test_expired(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "token"
        kasctl.ok(
            *("user", "add", "alice", "--agent", "prod", "--as-agent"),
            *("--expires", "0", "--token-file", str(file)),
        )
        arguments = ("kubeconfig", "--agent", "prod", "--token-file", str(file))
        assert "has expired" in kasctl.fails(*arguments)

    def test_output_file(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "kubeconfig"
        arguments = ("kubeconfig", "--agent", "prod", "--output-file", str(file))
        said = kasctl.ok(*arguments)
        assert str(file) in said
        assert "kasuser-" not in said
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert self.token(yaml.safe_load(file.read_text())).startswith("user:1:kasuser")
        before = file.read_text(), kasctl.store().load()
        assert "is there already" in kasctl.fails(*arguments, "--rotate")
        assert (file.read_text(), kasctl.store().load()) == before
        file.unlink()
        content = kasctl.data(*arguments, "--rotate")
        assert content == {"kubeconfig_file": str(file), "user": "kubectl-prod"}
        said = kasctl.fails("kubeconfig", "--agent", "test", "--output-file", "/none/x")
        assert "no token was made" in said

    def test_where_kas_listens(self, kasctl: Kasctl) -> None:
        state = StateDirectory.open(kasctl.state)
        own = state.file("server.crt")
        cases = (
            ("127.0.0.1:9154", own, "https://127.0.0.1:9154", True),
            ("0.0.0.0:9154", own, "https://127.0.0.1:9154", True),
            ("[::]:9154", kasctl.path / "x.crt", "https://[::1]:9154", False),
            ("10.0.0.1:9154", None, "http://10.0.0.1:9154", False),
        )
        for address, certificate, url, embedded in cases:
            running.tell(state, [Opened("kubernetes_api", address, certificate)])
            content = kasctl.kubeconfig("--agent", "prod", "--user", "u")
            cluster = content["clusters"][0]["cluster"]
            assert cluster["server"] == url
            assert ("certificate-authority-data" in cluster) is embedded
            kasctl.store().remove_user(content["users"][0]["name"].partition("@")[0])
        running.tell(state, [Opened("kubernetes_api", "/run/kas.sock")])
        said = kasctl.fails("kubeconfig", "--agent", "prod")
        assert "say where it is reached with --server" in said
        content = kasctl.kubeconfig("--agent", "prod", "--server", "https://kas:1")
        assert content["clusters"][0]["cluster"]["server"] == "https://kas:1"
        running.tell(state, [Opened("agents", "127.0.0.1:9150", own)])
        assert "tls://<kas>:9150" in kasctl.run("agent", "add", "other").stderr

    def test_from_a_wrong_token_file(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "token"
        kasctl.ok("agent", "rotate", "prod", "--token-file", str(file))
        arguments = ("kubeconfig", "--agent", "prod", "--token-file", str(file))
        assert "an agent's token" in kasctl.fails(*arguments)
        file.write_text("nonsense")
        assert "no valid token" in kasctl.fails(*arguments)
        file.unlink()
        assert "cannot be read" in kasctl.fails(*arguments)

    @pytest.mark.parametrize(
        ("server", "embedded"),
        [
            ("https://localhost:9", True),
            ("https://[::1]:9/k8s-proxy/", True),
            ("https://kas.example.org", False),
        ],
    )
    def test_whose_certificate(
        self, kasctl: Kasctl, server: str, embedded: bool
    ) -> None:
        pki.DevelopmentPki(
            StateDirectory.open(kasctl.state), "h", lambda: datetime.now(UTC)
        ).ensure()
        content = kasctl.kubeconfig("--agent", "prod", "--server", server)
        cluster = content["clusters"][0]["cluster"]
        assert cluster["server"] == server.rstrip("/")
        assert ("certificate-authority-data" in cluster) is embedded

    def test_another_authority(self, kasctl: Kasctl) -> None:
        kasctl.kubeconfig("--agent", "prod")
        arguments = (
            *("--agent", "test", "--server", "https://kas.example.org", "--ca-file"),
            str(kasctl.state / "ca.crt"),
        )
        cluster = kasctl.kubeconfig(*arguments)["clusters"][0]["cluster"]
        assert "certificate-authority-data" in cluster
        said = kasctl.fails("kubeconfig", *arguments[:-1], str(kasctl.state / "lock"))
        assert "is not a PEM certificate" in said

    def test_plain_http_is_warned_of(self, kasctl: Kasctl) -> None:
        result = kasctl.run("kubeconfig", "--agent", "prod", "--server", "http://h")
        assert "kubectl sends no token over http" in result.stderr
        assert "is not a URL" in kasctl.fails(
            "kubeconfig", "--agent", "prod", "--server", "h:1", code=2
        )


class TestConfigCheck:
    """config check"""

    def test_good(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "kas.yaml"
        file.write_text("observability: {logging: {level: debug}}")
        assert "is usable" in kasctl.ok("config", "check", str(file))

    def test_all_problems(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "kas.yaml"
        file.write_text("agnet: {}\nobservability: {logging: {level: loud}}\n")
        said = kasctl.fails("config", "check", str(file)).splitlines()
        assert len(said) == 2
        assert said[0].startswith(f"{file}:1:1: unknown key 'agnet'")
        result = kasctl.run("config", "check", str(file), "--output", "json")
        assert len(json.loads(result.stdout)["problems"]) == 2

    def test_no_file(self, kasctl: Kasctl) -> None:
        assert "cannot be read" in kasctl.fails("config", "check", "/none")


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
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


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
            running.tell(state, [Opened("health and metrics", "/run/kas.sock")])
            assert "say where it is with --url" in kasctl.fails("status")

    def test_when_kas_does_not_run(self, kasctl: Kasctl) -> None:
        said = kasctl.fails("status", "--url", f"http://{free_address()}")
        assert "is it running" in said
        for url in ("nonsense", "http://h:x", "ftp://h"):
            assert "is not a URL" in kasctl.fails("status", "--url", url)


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
        said = json.dumps({"message": "\x1b[2Jno\n" + 300 * "x"}).encode()
        _Api.answer = (401, said)
        shown = kasctl.fails("status", *server)
        assert "\x1b" not in shown
        assert r"refused: \x1b[2Jno\nxx" in shown
        assert len(shown) < 300
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


class TestDoctor:
    """doctor"""

    def diagnose(self, kasctl: Kasctl, *arguments: str) -> dict[str, tuple[bool, str]]:
        result = kasctl.run("doctor", *arguments, "--output", "json")
        content = json.loads(result.stdout)
        assert result.exit_code == (0 if content["ok"] else 1)
        return {c["check"]: (c["ok"], c["message"]) for c in content["checks"]}

    def prepared(self, kasctl: Kasctl) -> pki.ServerFiles:
        kasctl.ok("agent", "add", "prod")
        state = StateDirectory.open(kasctl.state)
        return pki.DevelopmentPki(state, "h", lambda: datetime.now(UTC)).ensure()

    def configured(self, kasctl: Kasctl, agents: str, health: str) -> tuple[str, str]:
        file = kasctl.path / "kas.yaml"
        file.write_text(
            f"agent: {{listen: {{address: '{agents}', development_certificate: true}}}}"
            f"\nobservability: {{listen: {{address: '{health}'}}}}\n"
        )
        return "--configuration-file", str(file)

    def test_nothing_there(self, kasctl: Kasctl) -> None:
        file = self.configured(kasctl, free_address(), free_address())
        found = self.diagnose(kasctl, *file)
        assert found["configuration"][0] is True
        assert not any(ok for name, (ok, _) in found.items() if name != "configuration")
        assert "start kas once" in found["state directory"][1]
        assert "is kas running" in found["agent listener"][1]
        assert not kasctl.state.exists()

    def test_all_but_ready(self, kasctl: Kasctl) -> None:
        files = self.prepared(kasctl)
        with (
            observability() as health,
            agent_listener(
                files.certificate_file, files.key_file, ALPN_TUNNEL
            ) as agents,
        ):
            found = self.diagnose(kasctl, *self.configured(kasctl, agents, health))
        wrong = {name: said for name, (ok, said) in found.items() if not ok}
        assert list(wrong) == ["readiness"]
        assert "not ready: starting" in wrong["readiness"]
        assert "TLSv1.3 with the expected certificate" in found["agent listener"][1]
        assert "1 agent and 0 users" in found["identity file"][1]
        assert files.pin in found["certificate"][1]

    def test_of_the_kas_that_runs(self, kasctl: Kasctl) -> None:
        files = self.prepared(kasctl)
        state = StateDirectory.open(kasctl.state)
        with (
            observability() as health,
            agent_listener(
                files.certificate_file, files.key_file, ALPN_TUNNEL
            ) as agents,
        ):
            listeners = [
                Opened("agents", agents, files.certificate_file),
                Opened("health and metrics", health),
            ]
            running.tell(state, listeners)
            found = self.diagnose(kasctl)
        assert [name for name, (ok, _) in found.items() if not ok] == ["readiness"]
        assert f"process {os.getpid()}" in found["configuration"][1]
        assert agents in found["agent listener"][1]
        # the option wins
        other = free_address()
        found = self.diagnose(kasctl, *self.configured(kasctl, other, other))
        assert other in found["agent listener"][1]

    def test_text(self, kasctl: Kasctl) -> None:
        file = self.configured(kasctl, free_address(), free_address())
        lines = kasctl.run("doctor", *file).stdout.splitlines()
        assert lines[0].startswith("ok    configuration: ")
        assert lines[1].startswith("FAIL  state directory: ")

    def test_something_else_listens(self, kasctl: Kasctl) -> None:
        files = self.prepared(kasctl)
        with agent_listener(files.certificate_file, files.key_file, "h2") as agents:
            file = self.configured(kasctl, agents, free_address())
            found = self.diagnose(kasctl, *file)
        assert found["agent listener"][0] is False
        with observability() as agents:
            file = self.configured(kasctl, agents, free_address())
            found = self.diagnose(kasctl, *file)
        assert found["agent listener"][0] is False

    def test_another_certificate(self, kasctl: Kasctl, tmp_path: Path) -> None:
        self.prepared(kasctl)
        other = pki.DevelopmentPki(
            StateDirectory.open(tmp_path / "other"), "h", lambda: datetime.now(UTC)
        ).ensure()
        with agent_listener(
            other.certificate_file, other.key_file, ALPN_TUNNEL
        ) as agents:
            file = self.configured(kasctl, agents, free_address())
            found = self.diagnose(kasctl, *file)
        assert "another certificate" in found["agent listener"][1]

    def test_broken_files(self, kasctl: Kasctl) -> None:
        self.prepared(kasctl)
        (kasctl.state / "identity.json").write_text("{")
        (kasctl.state / "server.crt").write_text("x")
        file = self.configured(kasctl, free_address(), free_address())
        found = self.diagnose(kasctl, *file)
        assert "not a usable identity file" in found["identity file"][1]
        assert "is not a PEM certificate" in found["certificate"][1]

    def test_a_broken_configuration(self, kasctl: Kasctl) -> None:
        found = self.diagnose(kasctl, "--configuration-file", "/none")
        assert "cannot be read" in found["configuration"][1]
