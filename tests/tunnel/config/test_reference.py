"""What reference pages are made of."""

from __future__ import annotations

from tests.tunnel.config.schemas import Outer, Pair
from tunnel.config import keys


class TestKeys:
    def test_lists_nested_keys_with_defaults(self) -> None:
        found = {key.path: key for key in keys(Outer)}
        assert found["inner.port"].default == 1
        assert found["inner.port"].doc == "a port"
        assert "by_name.port" in found
        assert "current-context" in found
        assert [key.path for key in keys(Pair) if key.required] == ["low"]
