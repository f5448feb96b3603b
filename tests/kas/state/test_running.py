"""What a running kas says of itself."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher

from kas.state.directory import StateDirectory
from kas.state.process_socket import CALLS, path_of
from kas.state.running import (
    Running,
    file_name,
    forget,
    hold,
    leave,
    look,
    look_at_leaving,
    refuse_twins,
    tell,
)
from tunnel.errors import ConfigurationError
from tunnel.program.opened import Opened

FILE_NAME = file_name(os.getpid())

LISTENERS = [
    Opened("agents", "0.0.0.0:8150", Path("/etc/kas/tls.crt")),
    Opened("health and metrics", "/run/kas/health.sock"),
    Opened("the external API", "10.0.0.1:8153", None, "/kas"),
]


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory.open(tmp_path / "state")


def test_told_and_forgotten(state: StateDirectory) -> None:
    assert look(state) == ()
    tell(state, LISTENERS)
    assert stat.S_IMODE(state.file(FILE_NAME).stat().st_mode) == 0o600
    (found,) = look(state)
    assert found == Running(os.getpid(), tuple(LISTENERS))
    assert found.url("agents") == "https://127.0.0.1:8150"
    assert found.url("health and metrics") is None
    assert found.url("the external API") == "http://10.0.0.1:8153/kas"
    assert found.url("kubernetes_api") is None
    forget(state)
    assert not state.file(FILE_NAME).exists()
    forget(state)


def test_leaving(state: StateDirectory) -> None:
    """One that stops is no longer found by who looks for one to use."""
    leave(state)  # before it was ready
    tell(state, LISTENERS)
    found = look(state)
    assert look_at_leaving(state) == ()
    leave(state)
    assert (look(state), look_at_leaving(state)) == ((), found)
    # Another process with the same number, as in a container.
    tell(state, LISTENERS)
    assert (look(state), look_at_leaving(state)) == (found, ())
    leave(state)
    forget(state)
    assert look_at_leaving(state) == ()


def test_of_a_process_that_is_gone(state: StateDirectory) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    tell(state, LISTENERS)
    text = state.file(FILE_NAME).read_text()
    left = [
        state.file(file_name(gone.pid)),
        path_of(state, gone.pid),
        path_of(state, gone.pid, CALLS),
    ]
    for file in left:
        file.write_text(text)
    alive = path_of(state, os.getpid())
    others = [alive, state.file(file_name(0)), state.file("running-x.json")]
    for file in others:
        file.touch()
    assert [one.pid for one in look(state)] == [os.getpid()]
    forget(state)  # ours alone
    assert all(file.exists() for file in left)
    tell(state, LISTENERS)  # the next start cleans up
    assert not any(file.exists() for file in left)
    assert all(file.exists() for file in others)


def test_in_containers(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one volume, where each of them is process 1, and none sees the others'."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    names = []
    for host in ("kas-0", "kas-1", "long." * 50):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        tell(state, LISTENERS)
        (found,) = look(state)
        assert found.pid == 1
        names += [file_name(1), path_of(state, 1).name]
    assert len(set(names)) == 6
    assert max(map(len, names)) < 60
    forget(state)
    assert look(state) == ()
    # Not even one that was killed is anybody else's to judge.
    assert len(list(state.path.glob("running-*"))) == 2


def test_twins(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two containers whose hosts have one name: what the first has is left alone."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    monkeypatch.setattr(socket, "gethostname", lambda: "kas")
    refuse_twins(state)
    for pid in (os.getpid(), gone.pid):
        path = path_of(state, pid)
        with socket.socket(socket.AF_UNIX) as twin:
            twin.bind(str(path))
            twin.listen()
            with pytest.raises(
                ConfigurationError, match="the same host name, kas: give"
            ):
                refuse_twins(state)
        # It was killed.
        refuse_twins(state)
    with socket.socket(socket.AF_UNIX) as other:
        # Of a process that there is here.
        other.bind(str(path_of(state, os.getppid())))
        other.listen()
        refuse_twins(state)


def test_only_one_without_redis(state: StateDirectory) -> None:
    """The second is refused until the first one stops, or is killed."""
    first = hold(state)
    assert first is not None
    tell(state, LISTENERS)
    with pytest.raises(ConfigurationError, match=f"another kas {os.getpid()} .*redis"):
        hold(state)
    os.close(first)
    script = (
        "import sys; from pathlib import Path; from kas.state.running import hold;"
        "from kas.state.directory import StateDirectory;"
        "hold(StateDirectory.open(Path(sys.argv[1]))); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(state.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(ConfigurationError):
            hold(state)
        other.kill()
        other.wait()
    last = hold(state)
    assert last is not None
    os.close(last)


def test_several(state: StateDirectory) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        tell(state, LISTENERS)
        text = state.file(FILE_NAME).read_text()
        state.file(file_name(other.pid)).write_text(text)
        tell(state, LISTENERS)
        assert {one.pid for one in look(state)} == {os.getpid(), other.pid}
        forget(state)
        (left,) = look(state)
        assert str(left) == f"{other.pid} (agents 127.0.0.1:8150)"
        other.kill()
    assert look(state) == ()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"pid": 1}', '{"listeners": 7}', '{"listeners": [7]}', "7"],
)
def test_nonsense(state: StateDirectory, text: str) -> None:
    state.file(FILE_NAME).write_text(text)
    assert look(state) == ()


def test_a_state_that_cannot_be_written(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(StateDirectory, "write", write)
    logged = EventLoggingObserver()
    globalLogPublisher.addObserver(logged)
    try:
        tell(state, LISTENERS)
    finally:
        globalLogPublisher.removeObserver(logged)
    (event,) = logged
    assert event["reason"] == "Read-only file system"
