"""The parts of the demo that need no kas."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from demo import cluster, gitops, processes
from demo.cluster import choose, kube_assets
from demo.ports import free_ports, holder, is_free
from demo.processes import DemoError, Program, end_all, run
from demo.screen import Screen, milliseconds
from demo.stack import child_environment, find_ports
from demo.stopping import SIGNALS, Stopped, Stopping
from kas.config.schema import read_configuration

PATH = {"PATH": os.environ["PATH"]}


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(*command: str) -> Program:
        program = Program("it", command, tmp_path / "log", PATH, tmp_path)
        started.append(program)
        return program

    yield start
    end_all(started)


class TestPrograms:
    def test_log_of_one_that_ends_is_shown(self, start: Callable[..., Program]) -> None:
        program = start("sh", "-c", "seq 100; echo the reason >&2; exit 3")
        with pytest.raises(DemoError, match="it ended with status 3") as caught:
            program.wait_until(lambda: False, "nothing", 10)
        lines = caught.value.lines()
        assert lines[-1] == "  the reason"
        assert str(program.log) in lines[1]
        assert len(lines) == 2 + processes._TAIL_LINES

    def test_one_that_takes_too_long(self, start: Callable[..., Program]) -> None:
        program = start("sleep", "1000")
        with pytest.raises(DemoError, match=r"an end did not come within 0\.1 s"):
            program.wait_until(lambda: False, "an end", 0.1)

    def test_one_that_does_not_want_to_end(
        self, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "GRACE", 0.1)
        script = "trap '' TERM; touch ready; while :; do sleep 0.01; done"
        program = start("sh", "-c", script)
        program.wait_until((program.log.parent / "ready").exists, "it", 10)
        end_all([program])
        assert not Path(f"/proc/{program.pid}").exists()

    def test_all_end_when_the_demo_is_killed(self, tmp_path: Path) -> None:
        code = (
            "import sys, time\n"
            "from pathlib import Path\n"
            "from demo.processes import Program\n"
            "f = Path(sys.argv[1])\n"
            "p = Program('it', ['sleep', '1000'], f / 'log', {}, f)\n"
            "(f / 'new').write_text(str(p.pid))\n"
            "(f / 'new').rename(f / 'pid')\n"
            "time.sleep(1000)\n"
        ).replace("{}", repr(PATH))
        parent = subprocess.Popen([sys.executable, "-c", code, tmp_path])
        try:
            _wait((tmp_path / "pid").exists)
            pid = int((tmp_path / "pid").read_text())
            assert Path(f"/proc/{pid}").exists()
        finally:
            parent.send_signal(signal.SIGKILL)
            parent.wait()
        # an init that collects nothing leaves a zombie, which is no process any more
        stat = Path(f"/proc/{pid}/stat")
        _wait(lambda: not stat.exists() or ") Z " in stat.read_text())

    def test_commands(self, tmp_path: Path) -> None:
        assert run("it", ["sh", "-c", "echo out"], PATH, tmp_path) == "out\n"
        with pytest.raises(DemoError, match=r"it failed with status 2:\n  why"):
            run("it", ["sh", "-c", "echo why >&2; exit 2"], PATH, tmp_path)


class TestPorts:
    def test_who_has_a_port(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            assert not is_free(port)
            assert f"(process {os.getpid()})" in holder(port)

    def test_free_ones_are_free_and_different(self) -> None:
        ports = free_ports(5)
        assert len(set(ports)) == 5
        assert all(map(is_free, ports))

    def test_defaults_while_they_are_free(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("demo.stack.is_free", lambda port: True)
        ports = find_ports(any_free=False)
        assert (ports.agents, ports.health, ports.kubectl) == (8150, 8151, 8154)
        assert ports.configuration == ports.reason == ""

    def test_others_when_one_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("demo.stack.is_free", lambda port: port != 8151)
        ports = find_ports(any_free=False)
        assert ports.reason.startswith("port 8151 is taken by ")
        settings = read_configuration(ports.configuration, "kas.yaml")
        assert settings.agent.listen.address == f"127.0.0.1:{ports.agents}"
        assert settings.observability.listen.address == f"127.0.0.1:{ports.health}"
        section = yaml.safe_load(ports.configuration)["agent"]["kubernetes_api"]
        assert section["listen"]["address"] == f"127.0.0.1:{ports.kubectl}"


class TestCluster:
    def build(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        for name in cluster._PROGRAMS:
            (folder / name).touch()
        return folder

    def test_newest_complete_one_in_the_cache(self, tmp_path: Path) -> None:
        environ = {"XDG_CACHE_HOME": str(tmp_path)}
        assert kube_assets(environ) is None
        older = self.build(tmp_path / "txkas-kube" / "v1")
        newer = self.build(tmp_path / "txkas-kube" / "v2")
        assert kube_assets(environ) == newer
        (newer / "hostnode").unlink()
        assert kube_assets(environ) == older

    def test_told_where_it_is(self, tmp_path: Path) -> None:
        told = self.build(tmp_path / "told")
        self.build(tmp_path / "txkas-kube" / "v1")
        environ = {"XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": str(told)}
        assert kube_assets(environ) == told

    def test_yours_when_it_is_set(self, tmp_path: Path) -> None:
        config = tmp_path / "config"
        config.write_text(
            yaml.safe_dump(
                {
                    "clusters": [{"name": "c", "cluster": {"server": "http://x:1"}}],
                    "contexts": [
                        {"name": "c", "context": {"cluster": "c", "namespace": "n"}}
                    ],
                    "current-context": "c",
                }
            )
        )
        environ = {"KUBECONFIG": str(config), "HOME": str(tmp_path)}
        found = choose(None, environ, tmp_path, tmp_path)
        assert found.is_yours
        assert found.program is None
        assert found.namespace == "n"

    def test_what_is_not_there_is_not_replaced(self, tmp_path: Path) -> None:
        environ = {"HOME": str(tmp_path)}
        for forced in ("kube", "kubeconfig"):
            with pytest.raises(DemoError):
                choose(forced, environ, tmp_path, tmp_path)
        missing = environ | {"KUBECONFIG": str(tmp_path / "none")}
        with pytest.raises(DemoError, match="none"):
            choose(None, missing, tmp_path, tmp_path)


class TestScreen:
    def show(self, out: io.StringIO) -> Screen:
        times = iter([10.0, 10.0123])
        return Screen(out, lambda: next(times))

    def test_step_with_its_time_and_notes(self) -> None:
        out = io.StringIO()
        with self.show(out).step("it is done") as step:
            step.note("a note")
        first, second = out.getvalue().splitlines()
        assert first.split() == ["1", "it", "is", "done", "12", "ms"]
        assert second == "    a note"

    def test_plain_where_there_is_no_terminal(self) -> None:
        out = io.StringIO()
        with self.show(out).step("it is done"):
            pass
        assert "\x1b" not in out.getvalue()
        out = io.StringIO()
        out.isatty = lambda: True  # type: ignore[method-assign]
        with self.show(out).step("it is done"):
            pass
        assert "\x1b" in out.getvalue()

    def test_what_did_not_happen(self) -> None:
        out = io.StringIO()
        with self.show(out).step("it is done") as step:
            step.leave_out("the reason")
        assert "left out" in out.getvalue()
        assert "the reason" in out.getvalue()
        for error, word in ((DemoError("x"), "failed"), (Stopped(2), "stopped")):
            out = io.StringIO()
            with pytest.raises(type(error)), self.show(out).step("it is done"):
                raise error
            assert word in out.getvalue()

    def test_times(self) -> None:
        assert milliseconds(0.00149) == "1.5 ms"
        assert milliseconds(1.2345) == "1234 ms"


class TestEnvironment:
    def test_nothing_of_another_installation(self) -> None:
        environ = {"AGENTK_TOKEN": "x", "STATE_DIRECTORY": "/x", "HOME": "/h"}
        kept = child_environment(environ)
        assert kept.keys() == {"HOME", "no_proxy", "NO_PROXY"}

    def test_no_proxy_for_this_machine(self) -> None:
        kept = child_environment({"no_proxy": "example.com"})
        assert kept["no_proxy"] == "example.com,127.0.0.1,localhost"


class TestStopping:
    @pytest.fixture(autouse=True)
    def keep_handlers(self) -> Iterator[None]:
        kept = {number: signal.getsignal(number) for number in SIGNALS}
        yield
        for number, handler in kept.items():
            signal.signal(number, handler)
        Stopping._number = 0

    def test_signal_stops(self) -> None:
        Stopping.begin()
        with pytest.raises(Stopped) as caught:
            signal.raise_signal(signal.SIGTERM)
        assert caught.value.number == signal.SIGTERM

    def test_order_that_got_lost_is_remembered(self) -> None:
        Stopping.begin()
        Stopping.check()
        try:
            signal.raise_signal(signal.SIGINT)
        except Stopped:
            pass
        with pytest.raises(Stopped):
            Stopping.check()

    def test_nothing_disturbs_the_end(self) -> None:
        Stopping.begin()
        Stopping.end()
        signal.raise_signal(signal.SIGINT)


def test_lines_that_are_cut() -> None:
    """Not those that somebody copies."""
    command = f"  9 objects wait: kubectl annotate {'x' * 100}"
    assert gitops._cut(command) == command
    assert gitops._cut("y" * 101) == f"{'y' * 100}..."
    assert gitops._cut("y" * 100) == "y" * 100
