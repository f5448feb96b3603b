"""kasctl, run in this process on a state directory of its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from kas.ctl.cli import cli
from kas.identity.store import IdentityStore
from kas.state.directory import StateDirectory


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
