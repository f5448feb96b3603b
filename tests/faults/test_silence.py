"""F01, F02, F09, F10: somebody says nothing any more, and nobody is told."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from agentk.dialer import FIRST_CONNECT_TIMEOUT
from kas.agents.acceptor import AGENT_TIMING
from tests.faults import clients, figures, followers
from tests.faults.path import Path as Wire
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk

#: Seconds of silence after which an agent is gone, and the two sweeps around them.
DEAD = AGENT_TIMING.dead_after + 4

#: Seconds after which an agent is at another kas when its own is frozen: a balancer may
#: send it there once more, because the system of a frozen process takes connections.
MOVED = DEAD + FIRST_CONNECT_TIMEOUT + 1

#: Commands that run beside the requests, some of them at the agent that is cut off.
EXECS = 4

#: Seconds after which requests that hang at such a path go elsewhere.
HANGS = 8.0

#: Seconds after which new requests avoid what they would hang at.
AVOIDED = 8.0


def wired(stage: Stage, token: Path, name: str, number: int) -> tuple[Agentk, Wire]:
    """An agentk on a wire of its own to one kas."""
    kas = stage.kas[number]
    wire = stage.path([kas.agents], balanced=False)
    address = f"tls://127.0.0.1:{wire.port}"
    agentk = stage.fleet.agentk(token, stage.plane.agent, name=name, address=address)
    return agentk, wire


def connections(stage: Stage, number: int, name: str) -> int:
    """How many an agent has at one kas."""
    status = stage.kas[number].status()
    return sum(one["agent_name"] == name for one in status["agents"])


class Probe:
    """Asks once in a while, each on its own, and how long it takes at most."""

    def __init__(self, way: Way) -> None:
        self.way = way

    def __call__(self) -> tuple[float, int]:
        """Seconds and status of one request."""
        begin = time.monotonic()
        status = self.way.ask("GET", "/readyz").status
        return time.monotonic() - begin, status


class Pauses:
    """The longest time in which the output of one of several commands stood still."""

    def __init__(self, execs: Sequence[followers.Exec]) -> None:
        self.longest = 0.0
        self._lines = dict.fromkeys(execs, 0)
        self._since = dict.fromkeys(execs, time.monotonic())

    def look(self) -> None:
        """To be called now and then."""
        now = time.monotonic()
        for one, before in self._lines.items():
            lines = len(one.reader.lines)
            if lines > before:
                self._lines[one], self._since[one] = lines, now
            self.longest = max(self.longest, now - self._since[one])


def test_paths(
    stage: Stage,
    control_plane: ControlPlane,
    namespace: str,
    record: Record,
    long: bool,
) -> None:
    """
    F01, F02, F09, bugs 5 and 12, all at once: they take half a minute each.

    Of two agents one replica's path goes dark, of one both ways and of one on the way
    to agentk; the third agent's only process is stopped.
    """
    stage.add_user_for(["f01", "f02", "f09"])
    tokens = {name: stage.token_of(name) for name in ("f01", "f02", "f09")}
    # In an order in which no kas has too many at any time.
    cut, wire = wired(stage, tokens["f01"], "f01-a", 0)
    wired(stage, tokens["f01"], "f01-b", 1)
    stopped, _ = wired(stage, tokens["f09"], "f09", 2)
    deaf, half = wired(stage, tokens["f02"], "f02-a", 0)
    wired(stage, tokens["f02"], "f02-b", 1)
    ways = {name: stage.way(stage.front, f"of-{name}") for name in tokens}
    for name in ways:
        for kas in stage.kas:
            there = stage.way(kas, f"of-{name}")
            eventually(lambda there=there: stage.answers(there), what=name)  # type: ignore[misc]
    seconds = 65 if long else 36
    audit = control_plane.audit()
    with ExitStack() as stack:
        enter = stack.enter_context
        loads = {name: enter(clients.gets(ways[name], 20)) for name in ("f01", "f02")}
        posts = enter(clients.posts(ways["f09"], 5, namespace, "f09"))
        time.sleep(3)
        begin = time.monotonic()
        wire.drop_forth = wire.drop_back = True
        half.drop_back = True
        assert stopped.process is not None
        stopped.process.child.send_signal(signal.SIGSTOP)
        time.sleep(AVOIDED)
        # Whoever comes now is not to wait for one that is silent.
        slow = {"f01": 0.0, "f02": 0.0}
        gone: dict[str, float] = {}
        while time.monotonic() - begin < seconds:
            for name in slow:
                took, status = Probe(ways[name])()
                slow[name] = max(slow[name], took)
                assert status == 200
                if name not in gone and not connections(stage, 0, name):
                    gone[name] = time.monotonic() - begin
            time.sleep(0.2)
        unready = {"f01": not cut.ready(), "f02": not deaf.ready()}
        wire.drop_forth = wire.drop_back = half.drop_back = False
        stopped.process.child.send_signal(signal.SIGCONT)
        back = {
            "f01": clients.seconds_until(cut.ready, 40),
            "f02": clients.seconds_until(deaf.ready, 40),
            "f09": clients.seconds_until(lambda: stage.answers(ways["f09"]), 40),
        }
        time.sleep(3)
        made = posts.stop()
        for name, load in loads.items():
            seen = load.stop()
            number = name.upper()
            record.note(
                number,
                f"given up after {gone.get(name, 99):.0f} s",
                f"<= {DEAD} s",
                in_time=gone.get(name, 99) <= DEAD,
            )
            figures.requests_answered(record, number, seen, within=HANGS)
            record.note(
                number,
                f"requests {AVOIDED:.0f} s later took {slow[name]:.2f} s at most",
                "<= 2 s: they go to the other replica",
                in_time=slow[name] <= 2,
            )
            record.note(
                "bug 12",
                f"{name}: readiness {'false' if unready[name] else 'TRUE'} meanwhile, "
                f"back {back[name]:.1f} s after the path",
                "false, <= 30 s",
                unready[name],
                in_time=back[name] <= 30,
            )
    record.note(
        "F09",
        f"serves {back['f09']:.1f} s after SIGCONT",
        "<= 30 s",
        in_time=back["f09"] <= 30,
    )
    figures.posts_done_once(record, "F09", made, audit)


def test_kas_stops_dead(
    stage: Stage, control_plane: ControlPlane, namespace: str, record: Record
) -> None:
    """F10, bug 13: the kas with the agent is stopped and comes back to life."""
    pods.start_pods(stage.direct(namespace))
    first = stage.kas[0]
    stage.agentk("f10", at=[first])
    stage.agentk("f10-b", at=[stage.kas[1]])
    front = stage.path([kas.proxy for kas in stage.kas[1:]])
    way = stage.way(front)
    eventually(lambda: stage.answers(way))
    assert first.process is not None
    audit = control_plane.audit()
    kubectl = stage.kubectl(stage.kas[1], namespace)
    with ExitStack() as stack:
        load = stack.enter_context(clients.gets(way, 20))
        posts = stack.enter_context(clients.posts(way, 5, namespace, "f10"))
        execs = [
            stack.enter_context(followers.Exec(kubectl, "main", "tick"))
            for _ in range(EXECS)
        ]
        for one in execs:
            eventually(lambda one=one: one.numbers("got"), what="exec runs")  # type: ignore[misc]
        pauses = Pauses(execs)
        time.sleep(2)
        first.process.child.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        try:
            while time.monotonic() - begin < AVOIDED:
                pauses.look()
                time.sleep(0.2)
            slowest = 0.0
            moved = 99.0
            while time.monotonic() - begin < MOVED + 3:
                took, status = Probe(way)()
                assert status == 200
                slowest = max(slowest, took)
                pauses.look()
                if moved == 99 and sum(stage.agents(kas) for kas in stage.kas[1:]) == 2:
                    moved = time.monotonic() - begin
                time.sleep(0.3)
        finally:
            first.process.child.send_signal(signal.SIGCONT)
        # It believes for a moment that it has the agent still.
        stale = stage.way(first)
        late = [Probe(stale)() for _ in range(10)]
        time.sleep(2)
        problems = [problem for one in execs for problem in one.stop()]
    record.note(
        "F10",
        f"requests {AVOIDED:.0f} s later took {slowest:.2f} s at most",
        "<= 2 s",
        in_time=slowest <= 2,
    )
    figures.requests_answered(record, "F10", load.seen, within=HANGS)
    record.note(
        "F10",
        f"{EXECS} execs through other kas: {len(problems)} problems {problems[:2]}, "
        f"the longest pause {pauses.longest:.1f} s",
        f"0, <= {MOVED} s",
        not problems,
        in_time=pauses.longest <= MOVED,
    )
    record.note(
        "F10",
        f"its agent elsewhere after {moved:.0f} s",
        f"<= {MOVED} s",
        in_time=moved <= MOVED,
    )
    figures.posts_done_once(record, "F10", posts.seen, audit)
    record.note(
        "F10",
        f"at the kas that came back: {[(round(t, 2), s) for t, s in late]}",
        "200, <= 2 s each",
        all(status == 200 for _, status in late),
        in_time=all(took <= 2 for took, _ in late),
    )
    eventually(lambda: stage.agents(first) == 0, what="its view converges")
    record.note(
        "bug 13",
        f"agents of each kas: {stage.spread()}",
        "2 in all",
        sum(stage.spread()) == 2,
    )
