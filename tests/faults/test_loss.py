"""F07: a path that loses packets."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.faults import clients, followers
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually

#: Seconds for which nothing may come, at most.
STALL = 5.0


#: The agent is at the first, and asked for at the second.
KAS = 2


@contextmanager
def loss(stage: Stage, probability: float) -> Iterator[str]:
    """
    Lose packets between agentk and the first kas; says who does it.

    The kernel, where it lets us; else the path, by what a loss means to who waits.
    """
    with ExitStack() as stack:
        if _kernel_drops(stack, stage.kas[0].agents, probability):
            yield "the kernel"
            return
        stage.back.loss = probability
        try:
            yield "the path"
        finally:
            stage.back.loss = 0


def _kernel_drops(stack: ExitStack, port: int, probability: float) -> bool:
    program = shutil.which("iptables")
    if program is None:
        return False
    drop = ["-m", "statistic", "--mode", "random", "--probability", str(probability)]
    for which in ("--dport", "--sport"):
        rule = ["INPUT", "-i", "lo", "-p", "tcp", which, str(port), *drop]
        if subprocess.run([program, "-I", *rule, "-j", "DROP"]).returncode:
            return False
        undo = [program, "-D", *rule, "-j", "DROP"]
        stack.callback(lambda undo=undo: subprocess.run(undo, check=True))  # type: ignore[misc]
    return True


@pytest.mark.parametrize("percent", [1, 5])
def test_loss(
    percent: int,
    stage: Stage,
    control_plane: ControlPlane,
    namespace: str,
    record: Record,
    long: bool,
) -> None:
    """It becomes slower, and that is all."""
    pods.start_pods(stage.direct(namespace))
    kas, other = stage.kas
    agentk = stage.agentk(at=[kas])
    way = stage.way(other)
    eventually(lambda: stage.answers(way), 20, "the agent is reached")
    kubectl = stage.kubectl(other, namespace)
    kubectl.ok("get", "pods")
    with (
        loss(stage, percent / 100) as loser,
        clients.Events(control_plane, namespace, 5) as events,
        clients.watches(way, 10, namespace, control_plane) as watches,
        clients.gets(way, 50) as load,
    ):
        speed, pause = followers.bulk(kubectl, 1000 if long else 150)
        time.sleep(20 if long else 3)
        load.stop()
        events.stop()
        time.sleep(2)
    experiment = f"F07, {loser} loses {percent} %"
    seen = load.seen
    record.note(
        experiment,
        f"{seen['requests']} GETs: {seen['failed']} failed, p99 {seen['p99']} s, "
        f"longest {seen['longest']} s {seen['failures'][:3] or ''}",
        f"0 failed, none longer than {STALL} s",
        seen["failed"] == 0 and seen["longest"] <= STALL,
    )
    record.note(
        experiment,
        f"one stream beside them: {speed / 1e6:.0f} MB/s, longest pause {pause:.1f} s",
        f"no pause longer than {STALL} s",
        pause <= STALL,
    )
    problems = clients.watch_problems(watches["seen"], events.made)
    record.note(
        experiment,
        f"10 watches of {len(events.made)} events: {watches['broken_count']} broken, "
        f"{len(problems)} with lost or repeated events {problems[:2] or ''}",
        "0 broken, 0 lost or repeated",
        not problems and not watches["broken"],
    )
    assert agentk.process is not None
    connected = agentk.process.said().count("connected to kas")
    record.note(experiment, f"{connected} connection", "1: it is kept", connected == 1)
