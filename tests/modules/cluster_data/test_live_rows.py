"""Rows of a cluster, from its objects to a reader of kas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.modules.cluster_data.pair import LivePair, deployment


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LivePair]:
    pair = LivePair(tmp_path)
    yield pair
    pair.close()


def test_a_deployment(live: LivePair) -> None:
    live.add(deployment("web", image="registry/web:7"), deployment("api", ready=0))
    live.lead()
    live.advance(2)
    rows = live.rows("workloads")
    assert rows["web"]["health"] == "current"
    assert rows["web"]["images"] == ["registry/web:7"]
    assert (rows["api"]["ready"], rows["api"]["wanted"]) == (0, 1)
    assert rows["api"]["health"] == "in progress"
    assert set(live.rows("problems")) == {"api"}
