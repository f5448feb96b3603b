"""The section ``redis`` of kas' configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kas.configuring import problems
from tunnel.config import read_password, redis_address
from tunnel.toolkit.files import MAX_SECRET_FILE


def test_redis_needs_one_way_to_reach_it() -> None:
    (problem,) = problems("redis: {}")
    assert "write either 'server' or 'sentinel'" in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server: {address: 'redis://r:6379'}", "is a URL; write host:port"),
        ("server: {address: 'r:70000'}", "is not 'host:port'"),
        ("server: {address: r}, database_index: -1", "counted from 0"),
        ("server: {address: r}, key_prefix: 5", "expected text, got '5'; put it in qu"),
        ("server: {address: r}, key_prefix: true", "expected text, got 'true'"),
        ("server: {address: /r.sock}", "is not 'host:port'"),
        ("server: {address: /r}, network: unix, tls: {enabled: true}", "needs no TLS"),
        ("sentinel: {master_name: m, addresses: []}", "at least one"),
        ("sentinel: {master_name: m, addresses: ['a b']}", "is not 'host:port'"),
        (
            "sentinel: {master_name: m, addresses: [a]}, network: unix",
            "sentinels report the host of their master",
        ),
        ("server: {address: r}, write_timeout: 0s", "must be more than 0"),
    ],
)
def test_redis_is_checked(text: str, said: str) -> None:
    (problem,) = problems(f"redis: {{{text}}}")
    assert said in problem


def test_addresses_of_redis() -> None:
    assert redis_address("redis") == ("redis", 6379)
    assert redis_address("[::1]:7000") == ("::1", 7000)
    assert redis_address("10.0.0.1", 26379) == ("10.0.0.1", 26379)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\r\n", "is empty"),
        (b"\xff", "is not text"),
        (b"x" * (MAX_SECRET_FILE + 1), "is larger than"),
        (None, "cannot be read"),
    ],
)
def test_file_without_a_password(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "password"
    file.write_bytes(b" s3cret \r\n")
    assert read_password(file) == " s3cret "
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_password(file)
