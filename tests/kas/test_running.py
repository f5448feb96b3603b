"""What a running kas says of itself."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher

from kas.running import FILE_NAME, Running, forget, look, tell
from kas.state import StateDirectory
from tunnel.listening import Opened

LISTENERS = [
    Opened("agents", "0.0.0.0:8150", Path("/etc/kas/tls.crt")),
    Opened("health and metrics", "/run/kas/health.sock"),
]


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory.open(tmp_path / "state")


def test_told_and_forgotten(state: StateDirectory) -> None:
    assert look(state) is None
    tell(state, LISTENERS)
    assert stat.S_IMODE(state.file(FILE_NAME).stat().st_mode) == 0o600
    found = look(state)
    assert found == Running(os.getpid(), tuple(LISTENERS))
    assert found.url("agents") == "https://127.0.0.1:8150"
    assert found.url("health and metrics") is None
    assert found.url("kubernetes_api") is None
    forget(state)
    assert not state.file(FILE_NAME).exists()
    forget(state)


def test_of_a_process_that_is_gone(state: StateDirectory) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    tell(state, LISTENERS)
    text = state.file(FILE_NAME).read_text()
    other = text.replace(f'"pid": {os.getpid()}', f'"pid": {gone.pid}')
    assert other != text
    state.file(FILE_NAME).write_text(other)
    assert look(state) is None
    forget(state)  # not ours
    assert state.file(FILE_NAME).exists()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"pid": 1}', '{"pid": -1, "listeners": []}', '{"pid": "x"}', "7"],
)
def test_nonsense(state: StateDirectory, text: str) -> None:
    state.file(FILE_NAME).write_text(text)
    assert look(state) is None


def test_a_state_that_cannot_be_written(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(StateDirectory, "write", write)
    logged = EventLoggingObserver()
    globalLogPublisher.addObserver(logged)
    try:
        tell(state, LISTENERS)
    finally:
        globalLogPublisher.removeObserver(logged)
    (event,) = logged
    assert event["reason"] == "Read-only file system"
