"""The files in which tokens are kept."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from kas.ctl.kept_tokens import KeptTokens, Tokens, all_kept, cache_folder

TOKENS = Tokens("header.payload.signature", 2_000_000_000.0, "refresh")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that is not there yet."""
    return tmp_path / "cache" / "txkas"


@pytest.fixture
def kept(folder: Path) -> KeptTokens:
    """Tokens that are not there yet."""
    return KeptTokens.of(folder, "https://id.example.com", "kubernetes", ())


def _file(folder: Path) -> Path:
    (found,) = folder.glob("*.json")
    return found


def test_folder(tmp_path: Path) -> None:
    """As the XDG Base Directory Specification has it."""
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "txkas"
    home = Path.home() / ".cache" / "txkas"
    assert cache_folder({}) == cache_folder({"XDG_CACHE_HOME": "some/where"}) == home


def test_kept(folder: Path, kept: KeptTokens) -> None:
    """For this user alone, and not shown."""
    assert kept.read() is None
    kept.write(TOKENS)
    assert kept.read() == TOKENS
    assert folder.stat().st_mode & 0o777 == 0o700
    assert _file(folder).stat().st_mode & 0o777 == 0o600
    assert "refresh" not in repr(kept.read())
    folder.chmod(0o755)
    kept.write(TOKENS._replace(refresh_token=None))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert kept.read() == TOKENS._replace(refresh_token=None)
    assert kept.remove()
    assert not kept.remove()
    assert kept.read() is None


def test_each_its_own(folder: Path, kept: KeptTokens) -> None:
    """Of issuer, client and scopes; in whatever order these stand."""
    kept.write(TOKENS)
    issuer = "https://id.example.com"
    assert KeptTokens.of(folder, issuer, "other", ()).read() is None
    assert KeptTokens.of(folder, f"{issuer}/x", "kubernetes", ()).read() is None
    scoped = KeptTokens.of(folder, issuer, "kubernetes", ("groups", "email"))
    assert scoped.read() is None
    scoped.write(TOKENS)
    again = KeptTokens.of(folder, issuer, "kubernetes", ("email", "groups", "email"))
    assert again.read() == TOKENS
    for one in all_kept(folder):
        assert one.remove()
    assert all_kept(folder) == []


def test_of_others(folder: Path, kept: KeptTokens, tmp_path: Path) -> None:
    """What other users could read or place there is not used."""
    kept.write(TOKENS)
    file = _file(folder)
    file.chmod(0o640)
    assert kept.read() is None
    file.chmod(0o600)
    assert kept.read() == TOKENS
    elsewhere = file.rename(tmp_path / "elsewhere")
    file.symlink_to(elsewhere)
    assert kept.read() is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 9999,
        "{}",
        json.dumps({**TOKENS._asdict(), "id_token": 7}),
        json.dumps({**TOKENS._asdict(), "refresh_token": 7}),
        json.dumps({**TOKENS._asdict(), "expires_at": "x"}),
        json.dumps({**TOKENS._asdict(), "expires_at": 10**400}),
        json.dumps({**TOKENS._asdict(), "more": "x" * 300_000}),
    ],
)
def test_garbage(folder: Path, kept: KeptTokens, content: str) -> None:
    """It is as if nothing was kept."""
    kept.write(TOKENS)
    _file(folder).write_text(content)
    assert kept.read() is None


def test_one_at_a_time(folder: Path, kept: KeptTokens) -> None:
    """Who waits for long is told, and goes on when the other one ends."""
    told = threading.Event()
    order: list[str] = []

    def second() -> None:
        with kept.locked(told.set):
            order.append("second")

    waiting = threading.Thread(target=second)
    with kept.locked(lambda: order.append("never")):
        waiting.start()
        assert told.wait(20)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
