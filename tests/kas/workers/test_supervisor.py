"""What starts the workers; tests/integration has it as a whole."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor

from kas.config.schema import read_configuration
from kas.state import running
from kas.state.directory import StateDirectory
from kas.workers.part import WorkerCommand
from kas.workers.supervisor import Supervisor
from tunnel.errors import ConfigurationError

reactor: Any = _reactor

CONFIGURATION = """\
workers: 2
agent: {listen: {address: "127.0.0.1:0", development_certificate: false}}
"""


@pytest_twisted.ensureDeferred
async def test_a_host_with_a_long_name(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kasctl has to do without one socket, and agents and clients have all."""
    monkeypatch.setattr(socket, "gethostname", lambda: "h" * 64)
    folder = tmp_path_factory.mktemp("k")
    state = StateDirectory.open(folder / ("d" * (60 - len(str(folder)))))
    configuration = read_configuration(CONFIGURATION, "kas.yaml")
    supervisor = Supervisor(configuration, [], state, WorkerCommand(), reactor)
    try:
        assert list(await supervisor._sockets.open_shared()) == ["agent.listen"]
    finally:
        await supervisor._sockets.stop()


@pytest_twisted.ensureDeferred
async def test_a_start_that_fails(tmp_path: Path) -> None:
    """The supervisor removes its files, and lets another kas have the directory."""
    state = StateDirectory.open(tmp_path / "s")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = CONFIGURATION.replace(":0", f":{port}")
        configuration = read_configuration(text, "kas.yaml")
        supervisor = Supervisor(configuration, [], state, WorkerCommand(), reactor)
        with pytest.raises(ConfigurationError, match=str(port)):
            await supervisor._tree.start()
        await supervisor._tree.end()
    assert [one.name for one in state.path.iterdir()] == ["kas.lock"]
    lock = running.hold(state)
    assert lock is not None
    os.close(lock)
