"""kasctl kubeconfig, as an operator meets it."""

from __future__ import annotations

import base64
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kas.ctl.cli import cli
from kas.identity.store import digest
from kas.state import pki, running
from kas.state.directory import StateDirectory
from tests.kas.ctl.kasctl import Kasctl
from tunnel.program.opened import Opened


class TestKubeconfig:
    """kubeconfig"""

    @pytest.fixture(autouse=True)
    def agents(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        kasctl.ok("agent", "add", "test")

    def token(self, content: Any) -> str:
        named: str = content["users"][0]["user"]["token"]
        kind, agent, token = named.split(":")
        server: str = content["clusters"][0]["cluster"]["server"]
        assert kind == "user" and server.endswith(f"/agents/{agent}")
        return token

    def test_works_before_kas_ever_ran(self, kasctl: Kasctl) -> None:
        content = kasctl.kubeconfig("--agent", "test", "--as-agent")
        cluster = content["clusters"][0]["cluster"]
        assert cluster["server"] == "https://127.0.0.1:8154/agents/test"
        authority = base64.b64decode(cluster["certificate-authority-data"])
        assert authority == (kasctl.state / "ca.crt").read_bytes()
        assert content["current-context"] == content["contexts"][0]["name"] == "test"
        token = self.token(content)
        (user,) = kasctl.store().load().users
        assert user.name == "kubectl-test"
        assert digest(token.encode()).hex() == user.token.sha256

    def test_json_is_a_kubeconfig_too(self, kasctl: Kasctl) -> None:
        content = kasctl.data("kubeconfig", "--agent", "prod", "--as-agent")
        assert content["kind"] == "Config"

    def test_signing_in(self, kasctl: Kasctl) -> None:
        """With an identity provider: nothing in it is secret, and nothing is made."""
        provider = (
            "--oidc-issuer",
            "https://id.example.com",
            "--oidc-client-id",
            "k8s",
        )
        said = kasctl.run("kubeconfig", "--all", *provider, "--oidc-scope", "email")
        assert said.exit_code == 0, said.output
        assert "This output contains a token" not in said.stderr
        content = yaml.safe_load(said.stdout)
        assert [one["name"] for one in content["users"]] == [
            "oidc@kas-prod",
            "oidc@kas-test",
        ]
        (plugin,) = content["users"][1]["user"].values()
        assert plugin["command"] == "kasctl"
        line = "login --exec --issuer https://id.example.com --client-id k8s"
        assert plugin["args"] == [*line.split(), "--scope", "email", "--agent", "test"]
        command = cli.get_command(click.Context(cli), "login")
        assert command is not None
        command.make_context("login", plugin["args"][1:])
        assert plugin["interactiveMode"] == "IfAvailable"
        assert kasctl.store().load().users == ()
        file = kasctl.path / "config"
        merged = kasctl.ok(
            *("kubeconfig", "--agent", "test", *provider, "--user", "me"),
            *("--merge", "--output-file", str(file)),
        )
        assert "has me with the contexts: test" in merged
        assert yaml.safe_load(file.read_text())["users"][0]["name"] == "me@kas-test"

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--oidc-issuer", "https://x"),
            ("--oidc-client-id", "x"),
            ("--oidc-scope", "x"),
            ("--oidc-issuer", "http://id.example.com", "--oidc-client-id", "x"),
            ("--oidc-issuer", "https://x", "--oidc-client-id", "x", "--rotate"),
            ("--oidc-issuer", "https://x", "--oidc-client-id", "x", "--read-only"),
        ],
    )
    def test_signing_in_by_mistake(
        self, kasctl: Kasctl, arguments: tuple[str, ...]
    ) -> None:
        said = kasctl.fails("kubeconfig", "--agent", "test", *arguments, code=2)
        assert "--oidc-issuer" in said

    def test_a_user_that_is_there(self, kasctl: Kasctl) -> None:
        first = self.token(kasctl.kubeconfig("--agent", "prod", "--as-agent"))
        said = kasctl.fails("kubeconfig", "--agent", "prod")
        assert "--rotate" in said
        assert "--token-file" in said
        second = self.token(kasctl.kubeconfig("--agent", "prod", "--rotate"))
        assert first != second
        assert len(kasctl.store().load().users) == 1
        said = kasctl.fails(
            "kubeconfig", "--agent", "prod", "--rotate", "--as", "somebody"
        )
        assert "keeps its permissions" in said

    def test_rights_of_a_new_user(self, kasctl: Kasctl) -> None:
        kasctl.ok("kubeconfig", "--agent", "prod", "--as", "alice", "--user", "a")
        (user,) = kasctl.store().load().users
        assert user.impersonation is not None
        assert user.impersonation.username == "alice"

    def test_rights_of_a_new_user_have_to_be_said(self, kasctl: Kasctl) -> None:
        before = kasctl.store().load()
        said = kasctl.fails("kubeconfig", "--agent", "prod", "--user", "me", code=2)
        assert "specify the permissions of the new user 'me'" in said
        for option in ("--as USER", "--as-agent", "--read-only"):
            assert option in said
        assert kasctl.store().load() == before
        kasctl.ok("kubeconfig", "--agent", "prod", "--user", "me", "--read-only")
        (user,) = kasctl.store().load().users
        assert (user.read_only, user.impersonation) == (True, None)
        arguments = ("kubeconfig", "--agent", "prod", "--user", "me", "--rotate")
        said = kasctl.fails(*arguments, "--as-agent")
        assert "keeps its permissions" in said
        kasctl.ok(*arguments, "--read-only")

    def test_tokens_end(self, kasctl: Kasctl) -> None:
        for more, days in (((), 90), (("--expires", "30d"), 30)):
            name = f"u{days}"
            kasctl.ok(
                *("kubeconfig", "--agent", "prod", "--user", name, "--as-agent"), *more
            )
            user = kasctl.store().load().users[-1]
            assert user.token.expires_at is not None
            assert (user.token.expires_at - user.token.created_at).days == days
        arguments = ("kubeconfig", "--agent", "prod", "--user", "u90", "--rotate")
        kasctl.ok(*arguments, "--expires", "never")
        listed = {one["name"]: one for one in kasctl.data("user", "list")}
        assert listed["u90"]["expires_at"] is None
        kasctl.ok(*arguments)
        listed = {one["name"]: one for one in kasctl.data("user", "list")}
        assert listed["u90"]["expires_at"] is not None

    def test_no_way_around_what_a_user_may_reach(self, kasctl: Kasctl) -> None:
        kasctl.ok("user", "add", "alice", "--agent", "prod", "--as-agent")
        before = kasctl.store().load()
        said = kasctl.fails(
            "kubeconfig", "--agent", "test", "--user", "alice", "--rotate"
        )
        assert "may not reach the agent 'test'; it may reach: prod" in said
        assert kasctl.store().load() == before
        # An environment counts as well.
        kasctl.ok("agent", "label", "test", "env=test")
        kasctl.ok("environment", "set", "test", "env=test")
        kasctl.ok("user", "grant", "alice", "--environment", "test")
        kasctl.ok("kubeconfig", "--agent", "test", "--user", "alice", "--rotate")

    def test_from_a_token_file(self, kasctl: Kasctl) -> None:
        file = str(kasctl.path / "token")
        kasctl.ok(
            *("user", "add", "alice", "--agent", "prod", "--as-agent"),
            *("--token-file", file),
        )
        before = kasctl.store().load()
        content = kasctl.kubeconfig("--agent", "prod", "--token-file", file)
        token = Path(file).read_text().strip()
        assert self.token(content) == token
        # as it stands in the kubeconfig of another tool
        Path(file).write_text(f"user:1:{token}")
        content = kasctl.kubeconfig("--agent", "prod", "--token-file", file)
        assert self.token(content) == token
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
        assert "the user 'alice' was revoked" in said
        assert kasctl.store().load() == before
        kasctl.ok("agent", "revoke", "prod")
        before = kasctl.store().load()
        assert "the agent 'prod' was revoked" in kasctl.fails(*arguments)
        assert kasctl.store().load() == before

    def test_expired(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "token"
        _, token = kasctl.store().add_user("alice", ["prod"], None, -timedelta(hours=1))
        file.write_text(token)
        arguments = ("kubeconfig", "--agent", "prod", "--token-file", str(file))
        assert "has expired" in kasctl.fails(*arguments)

    def test_output_file(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "kubeconfig"
        arguments = (
            *("kubeconfig", "--agent", "prod", "--as-agent"),
            *("--output-file", str(file)),
        )
        said = kasctl.ok(*arguments)
        assert str(file) in said
        assert "kasuser-" not in said
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert self.token(yaml.safe_load(file.read_text())).startswith("kasuser-")
        before = file.read_text(), kasctl.store().load()
        assert "already exists" in kasctl.fails(*arguments, "--rotate")
        assert (file.read_text(), kasctl.store().load()) == before
        file.unlink()
        content = kasctl.data(*arguments, "--rotate")
        assert content == {"kubeconfig_file": str(file), "user": "kubectl-prod"}
        other = ("kubeconfig", "--agent", "test", "--as-agent")
        said = kasctl.fails(*other, "--output-file", "/none/x")
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
            content = kasctl.kubeconfig("--agent", "prod", "--user", "u", "--as-agent")
            cluster = content["clusters"][0]["cluster"]
            assert cluster["server"] == f"{url}/agents/prod"
            assert ("certificate-authority-data" in cluster) is embedded
            kasctl.store().remove_user(content["users"][0]["name"].partition("@")[0])
        running.tell(state, [Opened("kubernetes_api", "/run/kas.sock")])
        said = kasctl.fails("kubeconfig", "--agent", "prod")
        assert "pass its URL with --server" in said
        content = kasctl.kubeconfig(
            *("--agent", "prod", "--server", "https://kas:1", "--as-agent"),
            "--system-cas",
        )
        assert (
            content["clusters"][0]["cluster"]["server"] == "https://kas:1/agents/prod"
        )
        running.tell(state, [Opened("agents", "127.0.0.1:9150", own)])
        assert "tls://<kas>:9150" in kasctl.run("agent", "add", "other").stderr

    def test_from_a_wrong_token_file(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "token"
        kasctl.ok("agent", "rotate", "prod", "--token-file", str(file))
        arguments = ("kubeconfig", "--agent", "prod", "--token-file", str(file))
        assert "contains the token of an agent" in kasctl.fails(*arguments)
        file.write_text("nonsense")
        assert "does not contain a valid token" in kasctl.fails(*arguments)
        file.unlink()
        assert "No such file or directory" in kasctl.fails(*arguments)

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
        command: tuple[str, ...] = ("--agent", "prod", "--server", server)
        command = (*command, "--as-agent")
        if not embedded and server.startswith("https"):
            before = kasctl.store().load()
            assert "No token was made" in kasctl.fails("kubeconfig", *command)
            assert kasctl.store().load() == before
            command = (*command, "--system-cas")
        content = kasctl.kubeconfig(*command)
        cluster = content["clusters"][0]["cluster"]
        assert cluster["server"] == f"{server.rstrip('/')}/agents/prod"
        assert ("certificate-authority-data" in cluster) is embedded

    def test_why_no_authority(self, kasctl: Kasctl) -> None:
        state = StateDirectory.open(kasctl.state)
        arguments = ("kubeconfig", "--agent", "prod", "--as-agent")
        server = ("--server", "https://192.0.2.2:8154")
        result = kasctl.run(*arguments, "--user", "a", *server, "--system-cas")
        assert "certificate-authority-data" not in result.stdout
        assert "is for localhost, 127.0.0.1" in result.stderr
        assert "add '192.0.2.2' to development_certificate_names" in result.stderr
        pki.DevelopmentPki(
            state, "h", lambda: datetime.now(UTC), ["192.0.2.2", "*.example.org"]
        ).ensure()
        for number, host in enumerate(("192.0.2.2", "kas.example.org")):
            result = kasctl.run(
                *arguments, "--user", f"b{number}", "--server", f"https://{host}"
            )
            assert "certificate-authority-data" in result.stdout
            assert "No CA" not in result.stderr
        other = kasctl.path / "other.crt"
        running.tell(state, [Opened("kubernetes_api", "127.0.0.1:9154", other)])
        result = kasctl.run(*arguments, "--user", "c", *server)
        assert "certificate-authority-data" not in result.stdout
        assert f"kas uses {other} there" in result.stderr

    def test_all_agents(self, kasctl: Kasctl) -> None:
        content = kasctl.kubeconfig("--all", "--user", "me", "--read-only")
        assert [one["name"] for one in content["contexts"]] == ["prod", "test"]
        # One token; kubectl's cache of what an API server has is by the URL.
        tokens = {one["user"]["token"].rpartition(":")[2] for one in content["users"]}
        assert len(tokens) == 1
        assert [one["cluster"]["server"] for one in content["clusters"]] == [
            "https://127.0.0.1:8154/agents/prod",
            "https://127.0.0.1:8154/agents/test",
        ]
        (user,) = kasctl.store().load().users
        assert user.agents == ("*",)
        kasctl.ok("user", "add", "bob", "--agent", "test", "--as-agent")
        content = kasctl.kubeconfig("--all", "--user", "bob", "--rotate")
        assert [one["name"] for one in content["contexts"]] == ["test"]
        kasctl.ok("user", "ungrant", "bob", "--agent", "test")
        said = kasctl.fails("kubeconfig", "--all", "--user", "bob", "--rotate")
        assert "no agent exists yet" in said
        for arguments in ((), ("--all", "--agent", "prod")):
            said = kasctl.fails("kubeconfig", *arguments, "--as-agent", code=2)
            assert "name the agents" in said
        said = kasctl.fails("kubeconfig", "--all", "--as-agent", code=2)
        assert "--user" in said

    def test_another_authority(self, kasctl: Kasctl) -> None:
        kasctl.kubeconfig("--agent", "prod", "--as-agent")
        arguments = (
            *(
                "--as-agent",
                "--agent",
                "test",
                "--server",
                "https://kas.example.org",
                "--ca-file",
            ),
            str(kasctl.state / "ca.crt"),
        )
        cluster = kasctl.kubeconfig(*arguments)["clusters"][0]["cluster"]
        assert "certificate-authority-data" in cluster
        said = kasctl.fails("kubeconfig", *arguments[:-1], str(kasctl.state / "lock"))
        assert "is not a PEM certificate" in said

    @pytest.mark.parametrize(
        ("server", "says"),
        [
            (
                "https://192.0.2.9:9150",
                "on port 9150, kas listens for agents; its Kubernetes API proxy is: "
                "https://127.0.0.1:9154/k8s",
            ),
            ("http://localhost:9154/k8s", "kas uses TLS on port 9154; use https:/"),
            (
                "https://localhost:9154/foo/",
                "kas does not accept the path '/foo', because url_path_prefix is "
                "'/k8s'; write https://localhost:9154/k8s",
            ),
            ("https://192.0.2.2:9154", "write https://192.0.2.2:9154/k8s"),
        ],
    )
    def test_what_kas_does_not_answer(
        self, kasctl: Kasctl, server: str, says: str
    ) -> None:
        state = StateDirectory.open(kasctl.state)
        made = pki.DevelopmentPki(
            state, "h", lambda: datetime.now(UTC), ["192.0.2.2"]
        ).ensure()
        own = made.certificate_file
        running.tell(
            state,
            [
                Opened("agents", "0.0.0.0:9150", own),
                Opened("kubernetes_api", "0.0.0.0:9154", own, "/k8s"),
            ],
        )
        before = kasctl.store().load()
        arguments = ("kubeconfig", "--agent", "prod", "--as-agent")
        assert says in kasctl.fails(*arguments, "--server", server)
        assert kasctl.store().load() == before
        # A proxy in front may take any path.
        server = "https://192.0.2.9:9154/foo"
        kasctl.ok(*arguments, "--server", server, "--system-cas")

    def test_for_this_machine_only(self, kasctl: Kasctl) -> None:
        state = StateDirectory.open(kasctl.state)
        running.tell(state, [Opened("kubernetes_api", "[::]:9154", None, "/k8s")])
        arguments = ("kubeconfig", "--agent", "prod", "--as-agent")
        result = kasctl.run(*arguments)
        assert "server: http://[::1]:9154/k8s/agents/prod" in result.stdout
        note = "# http://[::1]:9154/k8s leads to kas only on this machine; for kubectl"
        (line,) = (one for one in result.stderr.splitlines() if "this machine" in one)
        assert line.startswith(note)
        assert "--server" in line
        running.tell(state, [Opened("kubernetes_api", "192.0.2.2:9154", None)])
        assert "this machine" not in kasctl.run(*arguments, "--rotate").stderr

    def test_plain_http_is_warned_of(self, kasctl: Kasctl) -> None:
        result = kasctl.run(
            "kubeconfig", "--agent", "prod", "--server", "http://h", "--as-agent"
        )
        assert "kubectl does not send tokens over http" in result.stderr
        assert "is not a URL" in kasctl.fails(
            "kubeconfig", "--agent", "prod", "--server", "h:1", code=2
        )
