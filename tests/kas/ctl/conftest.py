"""What tests of kasctl are lent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kas.ctl.kasctl import Kasctl


@pytest.fixture
def kasctl(tmp_path: Path) -> Kasctl:
    """On a state directory that is not there yet."""
    return Kasctl(tmp_path)
