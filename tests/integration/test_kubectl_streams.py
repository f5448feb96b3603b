"""kubectl's commands that keep a connection: exec, attach, cp, port-forward, logs."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration import pods
from tests.integration.kubectl import Kubectl, Terminal, expect
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas

MakeKubectl = Callable[..., Kubectl]

ECHO = ("main", "-c", "echo")
_numbers = itertools.count()

IN_POD = ("exec", *ECHO, "--")

# `kubectl cp` is tar on both sides: the large file goes only once each way.
COPIED_AGAIN = 5


@pytest.fixture(scope="module")
def namespace_with_pods(shared_namespace: str, make_kubectl: MakeKubectl) -> str:
    """Where the pods run that all of these tests use."""
    pods.start_pods(make_kubectl("direct", namespace=shared_namespace))
    return shared_namespace


@pytest.fixture(scope="module")
def large(folder: Path) -> Path:
    """Much random data."""
    return pods.random_file(folder / "large", pods.LARGE)


@pytest.fixture(params=["websocket", "spdy"])
def transport(request: pytest.FixtureRequest) -> str:
    """What kubectl makes of the connection."""
    return str(request.param)


@pytest.fixture(params=["own", "machine"])
def version(request: pytest.FixtureRequest) -> str:
    """Which kubectl."""
    return str(request.param)


@pytest.fixture(params=["direct", "proxied"])
def way(request: pytest.FixtureRequest) -> str:
    """How it reaches the API server."""
    return str(request.param)


@pytest.fixture
def kubectl(
    way: str,
    version: str,
    transport: str,
    namespace_with_pods: str,
    make_kubectl: MakeKubectl,
) -> Kubectl:
    """One of the eight."""
    return make_kubectl(way, version, namespace_with_pods, transport)


def test_exec(kubectl: Kubectl) -> None:
    """Output, errors and status, each by itself."""

    def run(*command: str) -> tuple[int, bytes, bytes]:
        done = kubectl(*IN_POD, *command)
        # kubectl says itself what the status was, behind what the command said.
        return done.code, done.out, done.err.partition(b"command terminated")[0]

    def shell(text: str) -> tuple[int, bytes, bytes]:
        return run("sh", "-c", text)

    apart = "echo out; echo err >&2; exit 7"
    expect(kubectl, lambda: shell(apart), (7, b"out\n", b"err\n"))
    expect(kubectl, lambda: shell("kill -9 $$"), (137, b"", b""))
    expect(kubectl, lambda: run("nonesuch")[0], 127)
    words = "a b ü&?/%2f"
    expect(kubectl, lambda: run("echo", words), (0, f"{words}\n".encode(), b""))
    assert kubectl("exec", "nobody", "--", "true").code == 1


def test_exec_large(kubectl: Kubectl, large: Path, tmp_path: Path) -> None:
    """Much data goes in and comes back as it was."""
    back = tmp_path / "back"

    def run() -> tuple[int, str]:
        with large.open("rb") as source, back.open("wb") as target:
            done = subprocess.run(
                kubectl.command("exec", "-i", *ECHO, "--", "cat"),
                stdin=source,
                stdout=target,
                env=kubectl.environment(),
                timeout=120,
            )
        return done.returncode, pods.digest(back)

    expect(kubectl, run, (0, pods.digest(large)))


def test_terminal(kubectl: Kubectl) -> None:
    """Size, resize, Ctrl-C, and the status of the shell."""
    with Terminal(kubectl, "exec", "-it", *ECHO, "--", "sh", "-i") as terminal:

        def measures(size: bytes) -> bool:
            # The size travels by itself: what is typed may overtake it.
            terminal.type(b"stty size\n")
            return terminal.shows(size + rb"\r", 0.5)

        eventually(lambda: measures(b"33 99"), what="the size")
        terminal.resize(44, 111)
        eventually(lambda: measures(b"44 111"), what="the new size")
        # One program from the first letter on: there is no moment between two.
        terminal.type(b"sh -c 'echo be\"\"gin; exec sleep 1000'\n")
        assert terminal.shows(rb"begin\r"), terminal.seen
        terminal.type(b"\x03")
        terminal.type(b"echo code $?\n")
        assert terminal.shows(rb"code 130\r"), terminal.seen
        terminal.type(b"exit 42\n")
        assert terminal.ended() == 42


def test_attach(kubectl: Kubectl) -> None:
    """Lines to a container that runs, and its answers."""
    with kubectl.start("attach", "-i", *ECHO, stdin=True) as attached:
        for word in b"one", b"two":
            attached.write(word + b"\n")
            assert attached.line() == b"got " + word + b"\n"


def test_attach_terminal(kubectl: Kubectl) -> None:
    """A shell that was there before."""
    with Terminal(kubectl, "attach", "-it", "term") as terminal:
        terminal.type(b"echo $((6*7))\n")
        assert terminal.shows(rb"\n42\r"), terminal.seen


def test_copy(kubectl: Kubectl, version: str, large: Path, tmp_path: Path) -> None:
    """A file to a pod and back again."""
    if version != "own":
        large = pods.random_file(tmp_path / "smaller", COPIED_AGAIN)
    back = tmp_path / "back"

    def run() -> str:
        name = f"copied-{next(_numbers)}"
        kubectl.ok("cp", str(large), f"main:{name}", "-c", "echo")
        kubectl.ok("cp", pods.RETRIES, f"main:{name}", str(back), "-c", "echo")
        kubectl.ok(*IN_POD, "rm", name)
        return pods.digest(back)

    expect(kubectl, run, pods.digest(large))


def test_port_forward(kubectl: Kubectl) -> None:
    """Bytes both ways, on many connections at once."""
    with pods.echo_server() as inside:
        with kubectl.start("port-forward", "main", f":{inside}") as forward:
            match = re.search(rb":(\d+) ->", forward.line())
            assert match is not None
            port = int(match[1])
            assert pods.exchange(port, b"hello") == b"hello"
            messages = [os.urandom(1_000_000) for _ in range(8)]
            with ThreadPoolExecutor(len(messages)) as pool:
                heard = list(pool.map(lambda m: pods.exchange(port, m), messages))
            assert heard == messages
            assert pods.exchange(port, b"still") == b"still"


def test_run(kubectl: Kubectl) -> None:
    """`run -i --rm`: a pod as if it were a command."""

    def run() -> tuple[int, bytes]:
        done = kubectl(
            *("run", f"once-{next(_numbers)}", "-i", "--rm", "--quiet"),
            *("--restart=Never", "--image=any", "--command", "--", "sh", "-c"),
            "cat; exit 3",
            input=b"piped\n",
        )
        return done.code, done.out

    expect(kubectl, run, (3, b"piped\n"))


def test_debug(kubectl: Kubectl) -> None:
    """An ephemeral container in a pod that runs."""
    command = ("sh", "-c", "read line; echo debugged $line")

    def run() -> bytes:
        options = ("debug", "main", "-i", "--quiet", "--image=any", "--")
        return kubectl(*options, *command, input=b"it\n").out

    expect(kubectl, run, b"debugged it\n")


def test_logs(
    way: str, version: str, namespace_with_pods: str, make_kubectl: MakeKubectl
) -> None:
    """What a container said, and what it goes on saying."""
    kubectl = make_kubectl(way, version, namespace_with_pods)
    assert kubectl.ok("logs", "main", "-c", "tick", "--limit-bytes=7") == "tick 1\n"
    stamped = kubectl.ok("logs", "main", "-c", "tick", "--tail=2", "--timestamps")
    assert re.fullmatch(r"(\S+Z tick \d+\n){2}", stamped)
    assert kubectl("logs", "main", "-c", "none").code == 1
    with kubectl.start("logs", "-f", "main", "-c", "tick", "--tail=1") as following:
        numbers = [int(following.line().split()[1]) for _ in range(5)]
    assert numbers == list(range(numbers[0], numbers[0] + 5))


def test_slow_reader(
    transport: str,
    namespace_with_pods: str,
    make_kubectl: MakeKubectl,
    large: Path,
    tmp_path: Path,
    kas: Kas,
    agentk: Agentk,
) -> None:
    """Who reads slowly slows the sender; nothing is lost, and little is kept."""
    assert kas.process is not None and agentk.process is not None
    before = kas.process.resident() + agentk.process.resident()
    kubectl = make_kubectl("proxied", "own", namespace_with_pods, transport)
    # The command waits to be told that all has come: see `pods.RETRIES`.
    command = (*ECHO, "--", "sh", "-c", f"cat {large}; cat > /dev/null")
    with kubectl.start("exec", "-i", *command, stdin=True) as reader:
        assert reader.child.stdin is not None and reader.child.stdout is not None
        start = os.read(reader.child.stdout.fileno(), 1)
        name = "kas_kubernetes_api_bytes_total"
        passed = [-1.0]

        def rests() -> bool:
            passed.append(kas.metric(name))
            return passed[-1] == passed[-2]

        eventually(rests, what="kas stands still", pause=0.5)
        kept = kas.process.resident() + agentk.process.resident() - before
        back = tmp_path / "back"
        with back.open("wb") as target:
            target.write(start)
            while chunk := os.read(reader.child.stdout.fileno(), 1 << 20):
                target.write(chunk)
                if target.tell() == large.stat().st_size:
                    reader.child.stdin.close()
        assert reader.child.wait(20) == 0
    assert pods.digest(back) == pods.digest(large)
    assert kept < 64 * 1024 * 1024, f"{kept} bytes for one stream"
