"""The backend that the configuration selects."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from kas.storage.backend import make_stores
from kas.storage.sealed_backend import SealedBackend


def test_values_in_redis_are_sealed() -> None:
    made: Any = make_stores(
        Mock(), Mock(), Mock(), None, lambda: None, Mock(accepted=(b"a" * 32,))
    )
    assert isinstance(made._make(), SealedBackend)
