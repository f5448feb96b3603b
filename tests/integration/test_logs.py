"""The logs of both programs: readers that stall, files that move, SIGHUP."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.processes import (
    Process,
    clean_environment,
    eventually,
    script,
    twistd,
)
from tests.integration.stack import Agentk, Kas, fetch, metric
from tunnel.program.log_writer import MAX_QUEUED


@pytest.fixture(params=["kas", "agentk"])
def program(
    request: pytest.FixtureRequest, lone_kas: Kas, lone_agentk: Agentk
) -> Iterator[tuple[str, int, list[str | Path]]]:
    """A program's name, its port and its arguments; it does not run yet."""
    lone_kas.start()
    name: str = request.param
    if name == "kas":
        assert lone_kas.stop()
        arguments: list[str | Path] = ["--configuration-file", lone_kas.configuration]
        arguments += ["--state-directory", lone_kas.state]
        yield name, lone_kas.observability, arguments
    else:
        lone_agentk.start()
        assert lone_agentk.stop()
        yield name, lone_agentk.observability, lone_agentk.arguments()


def _ready(port: int) -> bool:
    return fetch(port, "/readiness")[0] == 200


#: Bytes that a pipe takes while nobody reads: the least that the kernel has.
_PIPE = 4096


@contextmanager
def _unread(command: list[str | Path]) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose standard output nobody reads."""
    child = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pipesize=_PIPE,
        env=clean_environment(),
    )
    assert child.stdout is not None
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_reader_that_stalls(program: tuple[str, int, list[str | Path]]) -> None:
    """Nobody reads standard output: the program goes on, and ends when it is told."""
    name, port, arguments = program
    with _unread(twistd(name, *arguments)) as child:
        eventually(lambda: _ready(port), what=f"{name} is ready")
        # Each SIGHUP is worth a line.
        for _ in range(3 * _PIPE // 150):
            child.send_signal(signal.SIGHUP)
            assert _ready(port)
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == -signal.SIGTERM


def test_lines_that_do_not_fit(lone_kas: Kas) -> None:
    """They are counted, and one line says so once the reader goes on."""
    lone_kas.start()
    assert lone_kas.stop()
    port = lone_kas.observability
    command = twistd("kas", "--configuration-file", lone_kas.configuration)
    with _unread([*command, "--state-directory", lone_kas.state]) as child:
        assert child.stdout is not None
        eventually(lambda: _ready(port), what="kas is ready")

        def lost() -> bool:
            for _ in range(200):
                child.send_signal(signal.SIGHUP)
                assert _ready(port)
            return metric(port, "kas_log_lines_dropped_total") > 0

        eventually(lost, 120, "lines are dropped")
        out = child.stdout.fileno()
        os.set_blocking(out, False)
        read = b""

        def told() -> bool:
            nonlocal read
            try:
                while data := os.read(out, 65536):
                    read += data
            except BlockingIOError:
                pass
            return b"log lines were dropped" in read

        eventually(told, what="the log says what was lost")
        assert len(read) > MAX_QUEUED
        child.send_signal(signal.SIGHUP)
        eventually(lambda: told() and read.endswith(b"}\n"))


def test_hangup(program: tuple[str, int, list[str | Path]], tmp_path: Path) -> None:
    """SIGHUP opens the log file again, reads files again, and ends nothing."""
    name, port, arguments = program
    log = tmp_path / "the.log"
    command = twistd("--logfile", log, name, *arguments)
    process = Process(name, command, tmp_path / "stdout")
    try:
        eventually(lambda: _ready(port), what=f"{name} is ready")
        assert "starting up" in log.read_text()
        log.rename(tmp_path / "the.log.old")
        process.child.send_signal(signal.SIGHUP)
        eventually(lambda: log.exists() and "SIGHUP" in log.read_text(), what="SIGHUP")
        if name == "kas":
            eventually(lambda: "identity file read again" in log.read_text())
        assert _ready(port)
        assert process.stop() == -signal.SIGTERM
        assert "Server Shut Down" in log.read_text()
        assert process.said() == ""
    finally:
        process.kill()


@pytest.mark.parametrize("closed", [(1,), (1, 2), (0, 1, 2)])
def test_closed_descriptors(
    closed: tuple[int, ...], program: tuple[str, int, list[str | Path]], tmp_path: Path
) -> None:
    """`twistd kas >&-` runs without a log, and without a traceback."""
    name, port, arguments = program
    errors = tmp_path / "errors"
    shell = " ".join(
        ["exec", '"$@"', *(f"{n}>&-" for n in closed)]
        + ([] if 2 in closed else [f"2>{errors}"])
    )
    child = subprocess.Popen(
        ["sh", "-c", shell, "sh", *map(str, twistd(name, *arguments))],
        env=clean_environment(),
        cwd=tmp_path,
    )
    try:
        eventually(lambda: _ready(port), what=f"{name} is ready")
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == -signal.SIGTERM
    finally:
        child.kill()
        child.wait()
    assert not errors.exists() or errors.read_text() == ""
    assert not (tmp_path / "TWISTD-CRASH.log").exists()


def test_level_in_a_file(lone_kas: Kas, tmp_path: Path) -> None:
    """`observability.logging.level` counts with a log file and in the background."""
    lone_kas.start()
    assert lone_kas.stop()
    settings = lone_kas.configuration
    settings.write_text(settings.read_text() + "  logging: {level: info}\n")
    log, pidfile = tmp_path / "kas.log", tmp_path / "kas.pid"
    subprocess.run(
        [
            *(script("twistd"), "--pidfile", pidfile, "--logfile", log),
            *("kas", "--configuration-file", settings),
            *("--state-directory", lone_kas.state),
        ],
        check=True,
        timeout=30,
        env=clean_environment(),
    )
    eventually(lambda: pidfile.exists() and pidfile.read_text(), what="a pid file")
    pid = int(pidfile.read_text())
    try:
        eventually(lambda: _ready(lone_kas.observability), what="kas is ready")
        # A client that is not TLS is worth a line of level debug.
        fetch(lone_kas.agents, "/")
        fetch(lone_kas.proxy, "/")
    finally:
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not Path(f"/proc/{pid}").exists(), what="kas ends")
    assert "kas is ready" in log.read_text()
    assert "#debug]" not in log.read_text()
