"""Secrets in files: whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunnel.toolkit.secret_file import MAX_FILE, MAX_SECRET, MIN_SECRET, read_secret


def test_white_space_is_around_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for size in (MIN_SECRET, MAX_SECRET):
        file.write_bytes(b"\r\n" * 99 + b"x" * size + b"\r\n" * 99)
        assert read_secret(file) == b"x" * size


def test_nothing_is_cut_off(tmp_path: Path) -> None:
    """Not where white space is in the middle, either."""
    file = tmp_path / "secret"
    for content in (
        b"x" * (MIN_SECRET - 1),
        b"x" * (MAX_SECRET + 1),
        b"x" * (MAX_SECRET - 1) + b"\n\nyyyy",
        b"x" * MIN_SECRET + b" " * MAX_FILE + b"x",
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="bytes"):
            read_secret(file)
    with pytest.raises(ValueError, match="cannot be read"):
        read_secret(tmp_path / "missing")
