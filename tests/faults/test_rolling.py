"""F12-F14: kas and agentk are restarted, added and taken away in good order."""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack
from pathlib import Path

from tests.faults import clients, figures, followers
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.faults.stand import FleetKas
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.processes import (
    PATIENCE,
    Process,
    eventually,
)
from tools.load.clients import Agents

WATCHES = 50

#: Seconds that a kas may take to stop: what its agents and load balancers get to
#: notice, the grace of 2 s for what runs, and the time of this machine.
DRAIN_SECONDS = 30

#: Seconds for which an agent may be out of reach in a planned restart.  It is half a
#: second, and more while programs start on two cores beside everything else.
UNREACHABLE = 5.0


def _errors(process: Process | None) -> list[str]:
    """Lines that would wake somebody up."""
    assert process is not None
    found = []
    for line in process.said().splitlines():
        if line.startswith("{"):
            content = json.loads(line)
            if content["level"] in ("error", "critical"):
                found.append(content["message"][:300])
    return found


class Everybody:
    """All kinds of clients at once, through the balancer; a context manager."""

    def __init__(self, stage: Stage, namespace: str, rate: float) -> None:
        way = stage.way(stage.front)
        stack = self._stack = ExitStack()
        enter = stack.enter_context
        self.events = clients.Events(stage.plane, namespace, 5)
        self.watches = clients.watches(way, WATCHES, namespace, stage.plane)
        enter(self.watches)
        enter(self.events)
        self.gets = enter(clients.gets(way, rate))
        self.posts = enter(clients.posts(way, 10, namespace, "made"))

    def __enter__(self) -> Everybody:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def note(self, record: Record, experiment: str) -> None:
        """End them; what they saw."""
        got, made = self.gets.stop(), self.posts.stop()
        self.events.stop()
        time.sleep(1.5)
        seen = self.watches.stop()
        figures.requests_answered(record, experiment, got, within=UNREACHABLE)
        figures.requests_answered(record, experiment, made, "POSTs")
        figures.watches_complete(record, experiment, seen, self.events.made)


def test_kas(
    stage: Stage,
    control_plane: ControlPlane,
    namespace: str,
    record: Record,
    long: bool,
) -> None:
    """F12: one kas after the other, with an exec open at each of them."""
    pods.start_pods(stage.direct(namespace))
    agentk = stage.agentk(at=[stage.kas[0]])
    eventually(lambda: all(stage.answers(stage.way(kas)) for kas in stage.kas))
    rounds = 3 if long else 1
    with Everybody(stage, namespace, 185 if long else 100) as everybody:
        for _ in range(rounds):
            for number, kas in enumerate(stage.kas):
                # What goes through it stays; what ends here is cut in time.
                other = stage.kas[(number + 1) % len(stage.kas)]
                with (
                    followers.Exec(
                        stage.kubectl(other, namespace), "main", "tick"
                    ) as far,
                    followers.Exec(
                        stage.kubectl(kas, namespace), "main", "tick"
                    ) as near,
                ):
                    for one in (far, near):
                        eventually(lambda one=one: one.numbers("got"))  # type: ignore[misc]
                    _restart(kas, record)
                    far.stop()
                record.note(
                    "F12",
                    f"an exec through another kas: {far.problems or 'whole'}",
                    "no byte lost or repeated",
                    not far.problems,
                )
        everybody.note(record, "F12")
    errors = [one for kas in stage.kas for one in _errors(kas.process)]
    errors += _errors(agentk.process)
    record.note("bug 26", f"errors in the logs: {errors or 'none'}", "none", not errors)


def _restart(kas: FleetKas, record: Record) -> None:
    process = kas.process
    assert process is not None
    begin = time.monotonic()
    process.child.send_signal(signal.SIGTERM)
    code = process.ended(DRAIN_SECONDS + 30)
    took = time.monotonic() - begin
    clean = code == -signal.SIGTERM and "Server Shut Down" in process.said()
    errors = _errors(process)
    process.kill()
    record.note(
        "F12",
        f"drained in {took:.1f} s, an exec open; {'clean' if clean else code}",
        f"<= {DRAIN_SECONDS} s, clean",
        clean,
        in_time=took <= DRAIN_SECONDS,
    )
    record.note("bug 26", f"errors in its log: {errors or 'none'}", "none", not errors)
    kas.start()


def test_agentk(
    stage: Stage,
    control_plane: ControlPlane,
    namespace: str,
    record: Record,
    long: bool,
) -> None:
    """F13, bugs 7 and 42: one of two replicas after the other."""
    replicas = [
        stage.agentk("agentk-1", at=[stage.kas[0]]),
        stage.agentk("agentk-2", at=[stage.kas[1]]),
    ]
    eventually(lambda: all(stage.answers(stage.way(kas)) for kas in stage.kas))
    with Everybody(stage, namespace, 185 if long else 100) as everybody:
        time.sleep(2)
        for replica in replicas * (3 if long else 1):
            process = replica.process
            assert process is not None
            begin = time.monotonic()
            clean = process.stops_cleanly(seconds=PATIENCE)
            took = time.monotonic() - begin
            errors = _errors(process)
            process.kill()
            record.note(
                "F13",
                f"agentk stopped in {took:.1f} s; errors: {errors or 'none'}",
                "cleanly, none",
                clean and not errors,
            )
            replica.start()
            time.sleep(2)
        everybody.note(record, "F13")


def test_scale(
    tmp_path: Path, control_plane: ControlPlane, record: Record, long: bool
) -> None:
    """F14: from one kas to three and back; 60 connections of twelve agents."""
    agents, instances = 12, 5
    total = agents * instances
    with Stage(tmp_path, control_plane) as stage, ExitStack() as stack:
        first, second, third = stage.kas
        first.start()
        stage.add_user_for([f"agent-{number}" for number in range(agents)])
        tokens = [
            stage.token_of(f"agent-{number}").read_text().strip()
            for number in range(agents)
        ]
        crowd = stack.enter_context(
            Agents(first.authority, [stage.back.port], kind="following")
        )
        # Sixty that are in one process are all silent when that has no time, and a
        # request may break no more than `MAX_LOST` paths.
        crowd.come_first()
        crowd.connect(tokens * instances, stage.back.port)
        assert stage.spread() == [total, 0, 0]
        ways = [stage.way(stage.front, user) for user in ("of-agent-0", "of-agent-7")]
        loads = [
            stack.enter_context(clients.gets(way, 40, "/anything")) for way in ways
        ]
        second.start()
        third.start()

        def even() -> bool:
            mean = total / 3
            return all(0.8 * mean <= here <= 1.2 * mean for here in stage.spread())

        took = clients.seconds_until(even, 150, 0.5)
        record.note(
            "F14",
            f"1 -> 3 kas: {stage.spread()} connections after {took:.0f} s",
            "within 20 % of even in <= 120 s",
            in_time=took <= 120,
        )
        time.sleep(40 if long else 12)
        record.note("F14", f"later: {stage.spread()}", "as even", even())
        begin = time.monotonic()
        for kas in (first, second):
            assert kas.process is not None
            kas.process.child.send_signal(signal.SIGTERM)
        for kas in (first, second):
            assert kas.process is not None
            assert kas.process.ended(PATIENCE) == -signal.SIGTERM
        took = time.monotonic() - begin
        eventually(lambda: stage.agents(third) == total, what="all are at the third")
        record.note(
            "F14",
            f"3 -> 1 kas, two at once: stopped after {took:.0f} s, "
            f"all {total} at the third after {time.monotonic() - begin:.0f} s",
            "<= 120 s",
            in_time=time.monotonic() - begin <= 120,
        )
        time.sleep(2)
        for load in loads:
            figures.requests_answered(record, "F14", load.stop())
