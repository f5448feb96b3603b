"""The folder of the sockets of workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kas.state.directory import StateDirectory
from kas.state.process_socket import worker_at
from kas.workers.folder import WorkersFolder
from tunnel.errors import ConfigurationError

#: Above what Linux gives to processes (PID_MAX_LIMIT).
NOBODY = 2**22 + 1


def _state(path: Path) -> StateDirectory:
    return StateDirectory.open(path / "s")


def test_made_and_removed(tmp_path: Path) -> None:
    state = _state(tmp_path)
    (state.path / "identity.json").write_text("{}")
    folder = WorkersFolder.make(state, 2)
    folder.socket(1, "peer").touch()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
    assert [one.name for one in state.path.iterdir()] == ["identity.json"]


def test_what_others_left(tmp_path: Path) -> None:
    state = _state(tmp_path)
    folder = WorkersFolder.make(state, 2)
    mine = folder.path
    folder.remove()
    prefix = mine.name.removesuffix(str(os.getpid()))
    gone = state.file(f"{prefix}{NOBODY}")
    begins = state.file(f"{prefix}{os.getppid()}")
    number_of_another = state.file(f"{prefix}1")
    elsewhere = state.file(f"workers-no-host-{NOBODY}")
    # In a container every process has the number of the one before.
    for path in (gone, begins, number_of_another, elsewhere, mine):
        path.mkdir()
        (path / "1.peer").touch()
    for path in (gone, number_of_another, mine):
        (path / "lock").touch()
    folder = WorkersFolder.make(state, 2)
    assert folder.path == mine
    assert [one.name for one in mine.iterdir()] == ["lock"]
    assert not gone.exists() and not number_of_another.exists()
    assert begins.exists() and elsewhere.exists()
    folder.remove()


def test_another_container(tmp_path: Path) -> None:
    """Its processes have the same numbers, or some that are not there here."""
    state = _state(tmp_path)
    theirs = WorkersFolder.make(state, 2)
    mine = WorkersFolder.make(state, 2)
    assert theirs.path != mine.path
    assert theirs.path.exists()
    prefix = theirs.path.name.removesuffix(str(os.getpid()))
    moved = theirs.path.rename(state.file(f"{prefix}{NOBODY}"))
    last = WorkersFolder.make(state, 2)
    assert moved.exists()
    theirs.path = moved
    for folder in (last, mine, theirs, theirs):
        folder.remove()
    assert list(state.path.iterdir()) == []


def test_too_long(tmp_path: Path) -> None:
    state = StateDirectory.open(tmp_path / ("d" * 90))
    with pytest.raises(ConfigurationError, match="shorter path, or 'workers: 1'"):
        WorkersFolder.make(state, 2)
    assert list(state.path.iterdir()) == []


def test_name_of_a_worker(tmp_path: Path) -> None:
    """Made of its address, as the folder makes it; other addresses stay."""
    for _ in range(2):  # the second beside another container's
        path = WorkersFolder.make(_state(tmp_path), 12).socket(12, "peer")
        assert worker_at(f"unix://{path}") == f"worker 12 of {os.getpid()}"
    for url in ("tls://kas-1:8155", "unix:///run/kas/2.peer", ""):
        assert worker_at(url) == url
