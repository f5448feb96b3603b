"""Number of bytes that the cache may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from modules.cluster_data.agent.budget import DEFAULT, budget_of


@pytest.mark.parametrize(
    ("limit", "budget"),
    [("max\n", DEFAULT), ("104857600\n", 26_214_400), ("99999999999\n", DEFAULT)],
)
def test_a_quarter_of_the_limit(tmp_path: Path, limit: str, budget: int) -> None:
    file = tmp_path / "memory.max"
    file.write_text(limit)
    assert budget_of(None, file) == budget


def test_no_limit_and_a_setting(tmp_path: Path) -> None:
    assert budget_of(None, tmp_path / "none") == DEFAULT
    assert budget_of(5, tmp_path / "none") == 5
