"""What starts the workers; tests/integration has it as a whole."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor

from kas.config.schema import read_configuration
from kas.state.directory import StateDirectory
from kas.workers.part import WorkerCommand
from kas.workers.supervisor import Supervisor

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
