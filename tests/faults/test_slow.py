"""F06, F07: much output over paths that carry little, straight and through kas."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path as File

import attrs
import pytest

from tests.faults import kernel
from tests.faults.path import KERNEL_BUFFER, SENT_AGAIN, Path
from tests.faults.record import Record
from tests.faults.slow_exec import PING_INTERVAL, SlowExec
from tests.faults.stage import Stage
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way

#: Agents are at it, and users ask it.
KAS = 1

#: Bytes that a command leaves behind in the kernel of the API server.
LAST = 2_000_000

#: Seconds for a PONG, for Ctrl-C to end a command, and for a GET beside the output: to
#: that come a round trip and the path's own buffers.
PONG, INTERRUPT, BESIDE = 5.0, 2.0, 2.0


@attrs.frozen
class Condition:
    """
    What is wrong with a path.

    :ivar rate: bytes a second; 0: no limit.
    :ivar loss: part of the packets that are lost.
    :ivar trip: seconds of a round trip.
    :ivar carries: bytes a second, about.
    :ivar kernel: who makes it bad is the kernel, and not the path of the tests.
    """

    name: str
    rate: float
    loss: float
    trip: float
    carries: float
    kernel: bool = False

    def spoil(self, path: Path, stack: ExitStack) -> Path:
        """Have *path* be like that, until *stack* ends."""
        stack.callback(path.close)
        if not self.kernel:
            path.rate, path.loss, path.delay = self.rate, self.loss, self.trip / 2
            return path
        path.holds = KERNEL_BUFFER
        if self.loss:
            stack.enter_context(kernel.losing(path.port, self.loss))
        return path

    @property
    def beside(self) -> float:
        """Seconds for a GET; what a path's own buffers hold no sender takes back."""
        held = KERNEL_BUFFER / self.rate if self.rate else 0
        # Each packet that is lost stops all behind it, and several in turn may be.
        again = 5 * SENT_AGAIN if self.loss else 0
        return BESIDE + self.trip + held + again


CONDITIONS = (
    Condition("0.1 MB/s, 300 ms", 0.1e6, 0, 0.3, 0.1e6),
    Condition("0.3 MB/s, 50 ms", 0.3e6, 0, 0.05, 0.3e6),
    Condition("1 MB/s, 300 ms", 1e6, 0, 0.3, 1e6),
    Condition("1 % loss, 50 ms", 0, 0.01, 0.05, 0.7e6),
    Condition("5 % loss, 50 ms", 0, 0.05, 0.05, 0.13e6),
    *(
        (
            Condition("1 % loss by the kernel", 0, 0.01, 0, 0.3e6, True),
            Condition("5 % loss by the kernel", 0, 0.05, 0, 0.3e6, True),
        )
        if kernel.can_lose()
        else ()
    ),
    *(
        (Condition("0.3 MB/s by the kernel", 0.3e6, 0, 0, 0.3e6, True),)
        if kernel.can_slow()
        else ()
    ),
)


class Beside(threading.Thread):
    """Small requests through the same tunnel, and how long the longest took."""

    def __init__(self, way: Way) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self.problems: list[str] = []
        self._way = way
        self._stopped = threading.Event()

    def run(self) -> None:
        """One each second."""
        while not self._stopped.wait(1):
            begun = time.monotonic()
            try:
                status = self._way.ask("GET", "/api/v1/namespaces/default").status
                if status != 200:
                    self.problems.append(f"status {status}")
            except OSError as error:
                self.problems.append(repr(error))
            self.longest = max(self.longest, time.monotonic() - begun)

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()
        self.join(60)


@attrs.define
class Run:
    """One path under one condition: a command that prints, and what was seen."""

    condition: Condition
    where: str
    way: Way
    execution: SlowExec
    size: int
    beside: Beside | None = None

    @property
    def name(self) -> str:
        """For the record."""
        return f"F06, {self.where}: {self.condition.name}"

    @property
    def complete(self) -> bool:
        """Every byte came, and the end."""
        one = self.execution
        return one.received == self.size and one.status == "Success"

    def answered(self, seconds: float) -> bool:
        """Whether its PINGs were, in time; one that is over by then may have none."""
        one = self.execution
        if not one.pongs:
            return one.took < PING_INTERVAL + seconds
        return max(one.pongs) <= seconds

    def said(self) -> str:
        """One line."""
        one = self.execution
        pong = f"{max(one.pongs):.1f} s" if one.pongs else "none"
        return (
            f"{one.received / 1e6:.1f} MB, {'complete' if self.complete else 'CUT'} "
            f"after {one.took:.0f} s, PONG {pong} at most, "
            f"pauses {one.pause:.1f} s, {one.status} {one.problem}"
        )


@pytest.fixture(scope="module")
def stage(all_kas: Stage) -> Stage:
    """Its agents and their paths stay for all experiments."""
    return all_kas


@pytest.fixture(scope="module")
def ways(
    stage: Stage, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[tuple[Condition, str, Way, Way | None]]]:
    """
    Each condition between client and kas, between agentk and kas, and without kas.

    With the second, a good way to kas for requests through the same tunnel.
    """
    (kas,) = stage.kas
    authority = tmp_path_factory.mktemp("ways") / "api-server.crt"
    authority.write_bytes(control_plane.authority)
    names = [f"behind-{number}" for number in range(len(CONDITIONS))]
    stage.add_user_for(names)
    stage.agentk()
    with ExitStack() as stack:
        found: list[tuple[Condition, str, Way, Way | None]] = []
        for condition, name in zip(CONDITIONS, names, strict=True):
            client, agent, straight = (
                condition.spoil(Path([port]), stack)
                for port in (kas.proxy, kas.agents, control_plane.port)
            )
            if condition.kernel and condition.rate:
                ports = (client.port, agent.port, straight.port)
                stack.enter_context(kernel.slow(dict.fromkeys(ports, condition.rate)))
            stage.fleet.agentk(
                stage.token_of(name),
                control_plane.agent,
                name=name,
                address=f"tls://127.0.0.1:{agent.port}",
            )
            behind = stage.way(kas, f"of-{name}")
            found += [
                (condition, "client", stage.way(client), None),
                (condition, "agentk", behind, behind),
                (
                    condition,
                    "straight",
                    Way("straight", straight.port, authority, control_plane.token),
                    None,
                ),
            ]
        for _, _, way, _ in found:
            eventually(lambda way=way: stage.answers(way), what="a way")  # type: ignore[misc]
        yield found


def test_slow_paths(
    ways: list[tuple[Condition, str, Way, Way | None]],
    stage: Stage,
    namespace: str,
    record: Record,
    long: bool,
) -> None:
    """A minute of output: alive to its end, and nothing else stands behind it."""
    pods.start_pods(stage.direct(namespace))
    # In the short form, too, more than all buffers on the way hold.
    seconds = 600 if long else 60
    runs = []
    begun = time.monotonic()
    for condition, where, way, beside in ways:
        size = int(condition.carries * seconds)
        execution = SlowExec.printing(way, namespace, size)
        execution.start()
        run = Run(condition, where, way, execution, size)
        if beside is not None:
            run.beside = Beside(beside)
            run.beside.start()
        runs.append(run)
    for run in runs:
        # The last PONG may stand behind all that was left.
        run.execution.join(max(0.1, begun + 1.5 * seconds - time.monotonic()))
        if run.beside is not None:
            run.beside.stop()
    with record.together():
        for run in runs:
            straight = run.where == "straight"
            record.note(
                run.name,
                run.said(),
                "for comparison" if straight else f"complete, PONG within {PONG:g} s",
                straight or run.complete,
                in_time=straight or run.answered(PONG),
            )
            if run.beside is not None:
                record.note(
                    run.name,
                    f"a GET beside it: {run.beside.longest:.1f} s at most "
                    f"{run.beside.problems[:2] or ''}",
                    f"within {run.condition.beside:.1f} s; asserted at 1.5 times that",
                    not run.beside.problems,
                    in_time=run.beside.longest <= 1.5 * run.condition.beside,
                )


def test_last_output(
    ways: list[tuple[Condition, str, Way, Way | None]],
    stage: Stage,
    namespace: str,
    record: Record,
) -> None:
    """A command that ended long before its output is here; PINGs cost none of it."""
    pods.start_pods(stage.direct(namespace))
    running = []
    for condition, where, way, _ in ways:
        execution = SlowExec.ending(way, namespace, LAST)
        execution.start()
        running.append(Run(condition, where, way, execution, LAST))
    with record.together():
        for run in running:
            run.execution.join(60)
            straight = run.where == "straight"
            record.note(
                f"{run.name}, the last {LAST / 1e6:g} MB",
                run.said(),
                "for comparison" if straight else "complete",
                straight or run.complete,
            )


def test_ctrl_c(
    ways: list[tuple[Condition, str, Way, Way | None]],
    stage: Stage,
    namespace: str,
    record: Record,
    tmp_path: File,
) -> None:
    """It ends the command, however much of its output stands on the way."""
    pods.start_pods(stage.direct(namespace))
    running = []
    for number, (condition, where, way, _) in enumerate(ways):
        when = tmp_path / f"when-{number}"
        execution = SlowExec.interrupted(way, namespace, when)
        execution.start()
        running.append((condition, where, execution, when))
    # Until every buffer is full.
    time.sleep(15)
    with record.together():
        for condition, where, execution, when in running:
            typed = execution.interrupt()
            try:
                eventually(lambda when=when: when.exists() and when.read_text())  # type: ignore[misc]
                ended = float(when.read_text()) - typed
            except AssertionError:
                ended = 60.0
            straight = where == "straight"
            record.note(
                f"F06, {where}: {condition.name}",
                f"Ctrl-C ends the command after {ended:.1f} s",
                "for comparison" if straight else f"within {INTERRUPT:g} s",
                in_time=straight or ended <= INTERRUPT,
            )
            execution.leave()
