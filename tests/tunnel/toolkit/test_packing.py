"""Deflated bytes: whole or refused, and never larger than agreed."""

from __future__ import annotations

import zlib

import pytest

from tunnel.toolkit.packing import pack, unpack


@pytest.mark.parametrize("data", [b"", b"a", b"gitlab:group_role:1:owner" * 1000])
def test_round_trip(data: bytes) -> None:
    assert unpack(pack(data), len(data)) == data


@pytest.mark.parametrize(
    "packed",
    [b"", b"no", pack(b"abc")[:-1], pack(b"abc") + b"x", zlib.compress(bytes(10**7))],
)
def test_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="compressed"):
        unpack(packed, 1000)


def test_one_byte_too_many() -> None:
    with pytest.raises(ValueError, match="more than 2 bytes"):
        unpack(pack(b"abc"), 2)
