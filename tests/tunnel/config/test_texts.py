"""Times and sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnel.config import parse_duration, parse_size
from tunnel.config.texts import MAX_DURATION, SCALARS


class TestTexts:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("0", 0),
            ("90s", 90),
            ("5m", 300),
            ("2h", 7200),
            ("1h30m", 5400),
            ("500ms", 0.5),
            ("0.5s", 0.5),
            ("1d", 86400),
            ("1m30s500ms", 90.5),
        ],
    )
    def test_durations(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == seconds

    @pytest.mark.parametrize(
        "text", ["", "5", "-5s", "s", "1s1s", "1s1h", "1 s", "5x", "1e3s", "99999d"]
    )
    def test_what_is_no_duration(self, text: str) -> None:
        with pytest.raises(ValueError):
            parse_duration(text)

    @pytest.mark.parametrize(
        ("parse", "text", "said"),
        [
            (parse_duration, "99999d", "longer than 100 years"),
            (parse_duration, "9" * 15 + "s", "longer than 100 years"),
            (parse_duration, "9" * 40 + "s", "longer than 100 years"),
            (parse_size, "9" * 12 + "GiB", "too large"),
            (parse_size, "9" * 40, "too large"),
            (SCALARS[int].parse, "9" * 40, "too large"),
            (SCALARS[float].parse, "1e999", "too large"),
        ],
    )
    def test_too_large(
        self, parse: Callable[[str], object], text: str, said: str
    ) -> None:
        """That is what is said, and not that it is no number or has no unit."""
        with pytest.raises(ValueError, match=said):
            parse(text)

    @given(st.text(alphabet="0123456789.dhms ", max_size=20))
    def test_durations_never_surprise(self, text: str) -> None:
        try:
            assert 0 <= parse_duration(text) <= MAX_DURATION
        except ValueError:
            pass

    def test_sizes(self) -> None:
        assert [parse_size(t) for t in ("7", "7B", "1 KiB", "2MiB", "1GiB")] == [
            7,
            7,
            1024,
            2 * 2**20,
            2**30,
        ]
        for text in ("1KB", "1.5MiB", "-1", "", "1k"):
            with pytest.raises(ValueError):
                parse_size(text)
