"""F26: one of several agentk is killed; its system closes its connection."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack

from tests.faults import clients, figures, followers
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.faults.stand import FleetKas
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tunnel.session.resume import ResumeLimits

NAME = "F26, SIGKILL of one of two agentk"

#: Half of them at each of the two.
WATCHES, EXECS = 20, 4

#: Seconds that this machine may take beyond the limits.
SLACK = 3.0

LIMITS = ResumeLimits()


def test_one_of_two(
    stage: Stage, control_plane: ControlPlane, namespace: str, record: Record
) -> None:
    """What cannot come back ends soon, watches first; what is elsewhere goes on."""
    pods.start_pods(stage.direct(namespace))
    gateway = stage.kas[0]
    victim = stage.agentk("first", at=[gateway])
    stage.agentk("second", at=[gateway])
    front = stage.path([kas.proxy for kas in stage.kas[1:]])
    way = stage.way(front)
    eventually(lambda: stage.answers(way), what="other kas reach the agent")
    with ExitStack() as stack:
        events = stack.enter_context(clients.Events(control_plane, namespace, 5))
        watches = stack.enter_context(
            clients.watches(way, WATCHES, namespace, control_plane)
        )
        kubectl = stage.kubectl(stage.kas[1], namespace)
        execs = [
            stack.enter_context(followers.Exec(kubectl, "main", "tick"))
            for _ in range(EXECS)
        ]
        for one in execs:
            eventually(lambda one=one: one.numbers("got"), what="exec runs")  # type: ignore[misc]
        loads = [one["streams"] for one in gateway.status()["agents"]]
        assert sum(loads) == WATCHES + EXECS and min(loads) >= EXECS, loads
        process = victim.process
        assert process is not None
        process.child.send_signal(signal.SIGKILL)
        began = time.monotonic()
        # All watches are at the other one then; its execs stay.
        back = clients.seconds_until(lambda: _streams(gateway) > WATCHES, 70)
        clients.seconds_until(lambda: _exited(execs) >= 1, 70)
        took = time.monotonic() - began
        time.sleep(3)
        gone = _exited(execs)
        for one in execs:
            if one.child.poll() is None:
                one.problems += one.stop()
        left = [one for one in execs if not one.child.returncode]
        problems = [problem for one in left for problem in one.problems]
        events.stop()
        time.sleep(1)
        seen = watches.stop()
    record.note(
        NAME,
        f"watches begin again after {back:.1f} s",
        f"<= {LIMITS.closed_notice + SLACK} s",
        in_time=back <= LIMITS.closed_notice + SLACK,
    )
    record.note(
        NAME,
        f"execs of the dead one end after {took:.1f} s",
        f"<= {LIMITS.closed_grace + SLACK} s",
        in_time=took <= LIMITS.closed_grace + SLACK,
    )
    record.note(
        NAME,
        f"{EXECS - gone} execs of the other one go on, {problems[:2]}",
        "some, without a gap",
        0 < gone < EXECS and not problems,
    )
    figures.watches_complete(record, NAME, seen, events.made)


def _streams(gateway: FleetKas) -> int:
    """Those of the one that lives, once the other one is gone."""
    agents = gateway.status()["agents"]
    return int(agents[0]["streams"]) if len(agents) == 1 else 0


def _exited(execs: list[followers.Exec]) -> int:
    return sum(one.child.poll() is not None for one in execs)
