"""kasctl doctor, as an operator meets it."""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kas.state import pki, running
from kas.state.directory import StateDirectory
from tests.kas.ctl.kasctl import Kasctl
from tests.kas.ctl.listeners import (
    agent_listener,
    free_address,
    free_addresses,
    observability,
)
from tests.tunnel.transport.certificates import Authority
from tunnel.program.opened import Opened
from tunnel.transport.tls import ALPN_TUNNEL


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
            f"agent:\n"
            f"  listen: {{address: '{agents}', development_certificate: true}}\n"
            # A kas of this machine may be at the usual one.
            f"  kubernetes_api: {{listen: {{address: '{free_address()}'}}}}\n"
            f"observability: {{listen: {{address: '{health}'}}}}\n"
        )
        return "--configuration-file", str(file)

    def test_nothing_there(self, kasctl: Kasctl) -> None:
        file = self.configured(kasctl, *free_addresses(2))
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
        # There is one unless it is turned off.
        assert list(wrong) == ["readiness", "API proxy"]
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
        assert "kasctl config check FILE" in found["configuration"][1]
        assert agents in found["agent listener"][1]
        # the option wins
        other = free_address()
        found = self.diagnose(kasctl, *self.configured(kasctl, other, other))
        assert other in found["agent listener"][1]

    def test_of_a_kas_that_stops(self, kasctl: Kasctl) -> None:
        """It is named, and not sought at the addresses of the defaults alone."""
        state = StateDirectory.open(kasctl.state)
        running.tell(state, [Opened("agents", "127.0.0.1:9150")])
        running.leave(state)
        ok, said = self.diagnose(kasctl)["configuration"]
        assert not ok
        assert f"kas {os.getpid()} (agents 127.0.0.1:9150) is stopping" in said

    def test_text(self, kasctl: Kasctl) -> None:
        file = self.configured(kasctl, *free_addresses(2))
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

    def test_without_the_key_of_the_ca(self, kasctl: Kasctl) -> None:
        """A start does not help: the certificate ends, and how to have a new one."""
        self.prepared(kasctl)
        (kasctl.state / "ca.key").unlink()
        ok, said = self.diagnose(kasctl)["certificate"]
        assert not ok
        assert "ca.key is missing" in said
        assert "remove ca.crt, ca.key and server.crt" in said
        assert "restart kas" not in said

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
        file = self.configured(kasctl, *free_addresses(2))
        found = self.diagnose(kasctl, *file)
        assert "not a valid identity file" in found["identity file"][1]
        assert "is not a PEM certificate" in found["certificate"][1]

    def test_a_broken_configuration(self, kasctl: Kasctl) -> None:
        found = self.diagnose(kasctl, "--configuration-file", "/none")
        assert "cannot be read" in found["configuration"][1]

    def test_a_file_hides_no_listener(self, kasctl: Kasctl) -> None:
        self.prepared(kasctl)
        secret = kasctl.path / "secret"
        secret.write_bytes(base64.b64encode(bytes(32)))
        addresses = free_addresses(4)
        file = kasctl.path / "kas.yaml"
        file.write_text(
            f"agent:\n  listen: {{address: '{addresses[0]}'}}\n"
            f"  kubernetes_api: {{listen: {{address: '{addresses[1]}'}}}}\n"
            f"api: {{listen: {{address: '{addresses[2]}', "
            f"authentication_secret_file: {secret}}}}}\n"
            f"private_api: {{listen: {{address: '{addresses[3]}', "
            f"authentication_secret_file: {secret}}}}}\n"
        )
        found = self.diagnose(kasctl, "--configuration-file", str(file))
        names = ("agent listener", "API proxy", "external API", "private API port")
        for name, address in zip(names, addresses, strict=True):
            assert found[name][1].startswith(f"{address} does not accept")

    def test_dates_of_named_certificates(self, kasctl: Kasctl) -> None:
        """doctor and config check say which, until when, and what to do."""
        self.prepared(kasctl)
        old = Authority().issue("kas", expired=True).write(kasctl.path, "old")
        end = datetime.now(UTC) + timedelta(days=3)
        soon = Authority().issue("kas", end=end).write(kasctl.path, "soon")
        agents, health = free_addresses(2)

        def text(one: tuple[str, str], other: tuple[str, str]) -> str:
            files = "certificate_file: {}, key_file: {}"
            return (
                f"agent: {{listen: {{address: '{agents}', {files.format(*one)}}}}}\n"
                f"observability: {{listen: {{address: '{health}', "
                f"{files.format(*other)}}}}}\n"
            )

        file = kasctl.path / "kas.yaml"
        file.write_text(text(soon, old))
        found = self.diagnose(kasctl, "--configuration-file", str(file))
        assert "expires on" in found["certificate"][1]
        name = "certificate observability.listen.certificate_file"
        assert found[name][0] is False
        assert f"{old[0]}: the certificate expired on" in found[name][1]
        assert "replace it and its key" in found[name][1]
        said = kasctl.fails("config", "check", str(file))
        assert f"observability.listen.certificate_file: {old[0]}: the cert" in said
        file.write_text(text(soon, soon))
        result = kasctl.run("config", "check", str(file))
        assert result.exit_code == 0
        assert "expires on" in result.stderr
        assert len(kasctl.data("config", "check", str(file))["warnings"]) == 2
