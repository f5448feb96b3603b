"""The state directory: where it is, who may write there, and whole files only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kas.state import directory as state
from kas.state.directory import StateDirectory, locate
from tunnel.errors import ConfigurationError


@pytest.mark.parametrize(
    ("option", "environ", "expected"),
    [
        ("/a", {"STATE_DIRECTORY": "/b"}, "/a"),
        (None, {"STATE_DIRECTORY": "/b:/c", "XDG_STATE_HOME": "/x"}, "/b"),
        (None, {"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/kas"),
        (None, {"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/kas"),
        (None, {"HOME": "/h"}, "/h/.local/state/kas"),
    ],
)
def test_locate(option: str | None, environ: dict[str, str], expected: str) -> None:
    assert locate(option, environ) == Path(expected)


def test_locate_makes_an_option_absolute() -> None:
    # twistd changes the working directory later
    assert locate("here", {}) == Path.cwd() / "here"


def test_nowhere() -> None:
    with pytest.raises(ConfigurationError, match="--state-directory"):
        locate(None, {})


def test_made_for_us_alone(tmp_path: Path) -> None:
    made = StateDirectory.open(tmp_path / "a" / "b")
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_refused_when_others_can_write(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "state"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 700"):
        StateDirectory.open(path)


def test_refused_when_its_owner_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kas would fail later, in a module; a command that reads may use it."""
    path = tmp_path / "state"
    path.mkdir()
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    path.chmod(0o500)
    with pytest.raises(ConfigurationError, match=r"mode 500\); chmod 700"):
        StateDirectory.open(path)
    StateDirectory.open(path, create=False)
    path.chmod(0o700)
    StateDirectory.open(path)


def test_refused_when_it_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(ConfigurationError, match="state"):
        StateDirectory.open(tmp_path / "state")


def test_not_made_when_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        StateDirectory.open(tmp_path / "state", create=False)
    assert not (tmp_path / "state").exists()


def test_write_replaces_the_whole_file(tmp_path: Path) -> None:
    directory = StateDirectory.open(tmp_path / "state")
    assert directory.read("x") is None
    directory.write("x", b"long content")
    before = directory.file("x").stat().st_ino
    directory.write("x", b"short")
    assert directory.read("x") == b"short"
    assert directory.file("x").stat().st_ino != before
    assert stat.S_IMODE(directory.file("x").stat().st_mode) == 0o600
    assert os.listdir(directory.path) == ["x"]


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    directory = StateDirectory.open(tmp_path / "state")
    directory.file("x").mkdir()
    with pytest.raises(OSError):
        directory.write("x", b"data")
    assert os.listdir(directory.path) == ["x"]


def test_read_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = StateDirectory.open(tmp_path / "state")
    monkeypatch.setattr(state, "MAX_FILE", 10)
    directory.write("x", b"1234567890")
    assert directory.read("x") == b"1234567890"
    directory.write("x", b"12345678901")
    with pytest.raises(ConfigurationError, match="larger than"):
        directory.read("x")


def test_lock_keeps_others_out(tmp_path: Path) -> None:
    directory = StateDirectory.open(tmp_path / "state")
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with directory.lock():
        with pytest.raises(ConfigurationError, match="holds the lock"):
            with directory.lock(timeout=1, seconds=lambda: now[0], sleep=sleep):
                raise AssertionError("locked twice")
    assert sum(slept) == pytest.approx(1, abs=0.1)
    with directory.lock(timeout=0):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_writes_belongs_to_kas(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    os.chown(path, 1234, 1234)
    directory = StateDirectory.open(path)
    with directory.lock():
        directory.write("x", b"data")
    for name in ("x", "lock"):
        found = directory.file(name).stat()
        assert (found.st_uid, found.st_gid) == (1234, 1234)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for other users")
@pytest.mark.parametrize("name", ["x", "lock"])
def test_links_that_root_does_not_follow(tmp_path: Path, name: str) -> None:
    """The user of kas may have planted them: a file of root stays as it is."""
    victim = tmp_path / "of-root"
    victim.write_bytes(b"root's")
    victim.chmod(0o600)
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    os.chown(path, 1234, 1234)
    directory = StateDirectory.open(path)
    directory.file(name).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        with directory.lock():
            directory.write(name, b"data")
    with pytest.raises(OSError, match="symbolic link"):
        directory.read(name)
    found = victim.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o600)
    assert victim.read_bytes() == b"root's"
    assert directory.file(name).is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for other users")
def test_a_lock_that_is_a_file_of_root(tmp_path: Path) -> None:
    """A second name of a file does not give it away either."""
    victim = tmp_path / "of-root"
    victim.write_bytes(b"")
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    os.chown(path, 1234, 1234)
    directory = StateDirectory.open(path)
    os.link(victim, directory.file("lock"))
    with directory.lock():
        pass
    assert victim.stat().st_uid == 0
