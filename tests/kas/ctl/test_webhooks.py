"""What ``kasctl webhooks`` prints of the deliveries of an agent."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kas.ctl import calls
from kas.ctl.cli import cli

BAD = "\x1b]0;x\x07 evil"

DELIVERY = {
    "target": "flux",
    "ref": "HEAD",
    "fullRef": "refs/heads/main",
    "address": "http flux-system/webhook-receiver:80/hook/1",
    "state": "PENDING",
    "after": "0123456789abcdef",
    "attempts": 2,
    "lastAttempt": "2027-01-15T08:00:00.123456Z",
    "nextAttempt": "2027-01-15T08:05:00Z",
    "lastStatus": 503,
    "lastBody": base64.b64encode(f"not ready\n{BAD}".encode()).decode(),
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a command; kas answers what it is given."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4)
    asked: list[Any] = []

    def run(answer: dict[str, Any], *arguments: str) -> tuple[str, Any]:
        def call(_: object, method: str, request: Any, timeout: float) -> Any:
            asked.append((method.rpartition("/")[2], request))
            return answer

        monkeypatch.setattr(calls.Server, "call", call)
        server = ("--server", "http://kas.example.org", "--secret-file", str(secret))
        result = CliRunner().invoke(cli, ["webhooks", *arguments, *server])
        assert result.exit_code == 0, result.output
        return result.output, asked[-1]

    return run


def test_list(run: Any) -> None:
    text, asked = run({"deliveries": [DELIVERY]}, "list", "prod")
    assert asked == ("ListDeliveries", {"agent": "prod"})
    assert text.splitlines() == [
        "flux  refs/heads/main  pending  0123456789ab",
        "  to http flux-system/webhook-receiver:80/hook/1",
        "  2 attempts, the last at 2027-01-15T08:00:00Z, the next at "
        "2027-01-15T08:05:00Z",
        "  last response: 503",
    ]


def test_bodies(run: Any) -> None:
    """Nothing in them does anything to a terminal."""
    text, _ = run({"deliveries": [DELIVERY]}, "list", "prod", "--body")
    assert "    not ready" in text
    assert "\x1b" not in text


def test_texts_of_others(run: Any) -> None:
    names = ("target", "fullRef", "address", "after", "lastError", "problem")
    text, _ = run({"deliveries": [dict.fromkeys(names, BAD)]}, "list", "prod")
    assert "\x1b" not in text


def test_json(run: Any) -> None:
    answer = {"deliveries": [DELIVERY]}
    text, _ = run(answer, "list", "prod", "--output", "json")
    assert json.loads(text) == answer


def test_resend(run: Any) -> None:
    text, asked = run({"deliveries": [DELIVERY]}, "resend", "prod", "flux", "main")
    assert asked == ("Resend", {"agent": "prod", "target": "flux", "ref": "main"})
    assert text == "agentk notifies flux of 1 ref now, or once it connects\n"
