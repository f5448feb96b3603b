"""What the experiments share: a control plane, stands, the record of their figures."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.faults.machine_time import MachineTime
from tests.faults.record import AGAIN, Record
from tests.faults.redis_experiments import CONNECTED, SPARE
from tests.faults.redis_stand import Stand
from tests.faults.stage import Stage
from tests.integration.cluster import ControlPlane
from tools.load.clients import Agents


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """For every figure; in ``build/faults.json`` at the end of the run."""
    # Of pytest-rerunfailures, counted from 1.
    attempt = getattr(request.node, "execution_count", 1)
    last = attempt > AGAIN["reruns"]
    return Record(request.node.user_properties, MachineTime().taken, last)


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether to take the time that ``make faults`` takes."""
    return os.environ.get("TXKAS_FAULTS") == "long"


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """Three kas around one Redis."""
    folder = tmp_path_factory.mktemp("redis-faults")
    with Stand(folder, CONNECTED + SPARE, CONNECTED) as stand:
        yield stand


@pytest.fixture(scope="module")
def agents(stand: Stand) -> Iterator[Agents]:
    """A third of `CONNECTED` at each of the kas."""
    with stand.agents() as agents:
        for number, kas in enumerate(stand.kas):
            agents.connect(stand.tokens[number:CONNECTED:3], kas.agents)
        yield agents


@pytest.fixture(scope="module")
def all_kas(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    control_plane: ControlPlane,
) -> Iterator[Stage]:
    """Three kas for all experiments of a file, or as many as its `KAS` says."""
    name = request.module.__name__.rpartition("_")[2]
    count = getattr(request.module, "KAS", 3)
    with Stage(tmp_path_factory.mktemp(name), control_plane, count) as stage:
        yield stage.start()


@pytest.fixture
def stage(all_kas: Stage) -> Iterator[Stage]:
    """All of them run."""
    yield all_kas
    all_kas.clear()
