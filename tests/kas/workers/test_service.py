"""A worker as a whole, on a reactor in memory; tests/integration has real ones."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from kas.config.schema import read_configuration
from kas.state.directory import StateDirectory
from kas.workers.limits import SharedLimits
from kas.workers.service import WorkerService
from kas.workers.supervised import SupervisedWorker
from kas.workers.worker import Worker
from tests.kas.test_service import CONFIGURATION, Reactor

URLS = ("unix:///k/1.peer", "unix:///k/2.peer", "unix:///k/3.peer")


def _service(folder: Path, *, shares_store: bool) -> WorkerService:
    secret = folder / "secret"
    secret.write_bytes(b64encode(b"x" * 32))
    worker = Worker(number=2, urls=URLS, secret=str(secret), shares_store=shares_store)
    configuration = read_configuration(CONFIGURATION, "kas.yaml")
    state = StateDirectory.open(folder / "state")
    return WorkerService(worker, configuration, [], state, Reactor(), environ={})


def test_a_worker_counts_with_the_others(tmp_path: Path) -> None:
    """Its limits and its ping interval depend on all workers together."""
    service = _service(tmp_path, shares_store=False)
    assert service.fleet.siblings is not None
    limits = service.fleet.siblings.workers
    assert isinstance(limits, SharedLimits)
    assert limits.workers == service._agents.acceptor.workers == 3
    assert service._agents.acceptor.rate.tell is not None
    assert service._credentials.authenticators.failed.tell is not None
    count_together = service._context.count_together
    assert count_together is not None
    assert count_together("a/b", 3) is limits.under_way("a/b", 3)
    assert isinstance(service._place, SupervisedWorker)
    assert service.fleet.sibling_urls == (URLS[0], URLS[2])


@pytest.mark.parametrize("shares", [False, True])
def test_changes_of_a_shared_store(tmp_path: Path, shares: bool) -> None:
    """Other workers learn of changes only if all use the same file."""
    service = _service(tmp_path, shares_store=shares)
    siblings = service.fleet.siblings
    assert siblings is not None
    assert service._store_listener() == (siblings.stored if shares else None)
