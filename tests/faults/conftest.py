"""What the experiments share: a control plane, stands, the record of their figures."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.record import Record
from tests.faults.redis_clients import Agents
from tests.faults.redis_experiments import CONNECTED, SPARE
from tests.faults.redis_stand import Stand
from tests.faults.stage import Stage
from tests.integration import needs
from tests.integration.cluster import ControlPlane
from tests.integration.conftest import make_namespace

_RECORD = pytest.StashKey[Record]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The figures, good and bad."""
    record = config.stash.get(_RECORD, None)
    if record is not None and record.figures:
        terminalreporter.section("faults")
        terminalreporter.line(record.table())


@pytest.fixture(scope="session")
def record(pytestconfig: pytest.Config) -> Iterator[Record]:
    """For every figure; kept in ``build/faults.json`` at the end."""
    record = pytestconfig.stash[_RECORD] = Record()
    yield record
    if record.figures:
        record.write()


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether to take the time that ``make faults`` takes."""
    return os.environ.get("TXKAS_FAULTS") == "long"


@pytest.fixture(scope="package")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server with everything around it."""
    folder = tmp_path_factory.mktemp("faults-kube")
    plane = ControlPlane(needs.kubernetes(), folder / "kube")
    yield plane
    plane.stop()


_numbers = itertools.count(1)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A name of its own in which pods can start; removed, but not waited for."""
    name = f"fault-{next(_numbers):03}"
    make_namespace(control_plane, name)
    yield name
    control_plane.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """Three kas around one Redis."""
    with Stand(tmp_path_factory.mktemp("redis-faults"), CONNECTED + SPARE) as stand:
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
