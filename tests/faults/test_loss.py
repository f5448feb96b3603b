"""F07: a path that loses packets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults import clients, figures, followers, kernel
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually

#: Seconds for which nothing may come, at most.
STALL = 5.0


#: The agent is at the first, and asked for at the second.
KAS = 2

#: Which form loses packets, how many of a hundred, and megabytes that come through in
#: half a minute.
FORMS = [("path", 1, 15), ("path", 5, 3)]
if kernel.can_lose():
    FORMS += [("kernel", 1, 75), ("kernel", 5, 75)]


@contextmanager
def loss(stage: Stage, form: str, probability: float) -> Iterator[None]:
    """
    Lose packets between agentk and the first kas.

    The kernel drops them; the path delays what they carried, as a loss does.
    """
    if form == "kernel":
        with kernel.losing(stage.kas[0].agents, probability):
            yield
        return
    stage.back.loss = probability
    try:
        yield
    finally:
        stage.back.loss = 0


@pytest.mark.parametrize(("form", "percent", "megabytes"), FORMS)
def test_loss(
    form: str,
    percent: int,
    megabytes: int,
    stage: Stage,
    control_plane: ControlPlane,
    namespace: str,
    record: Record,
    long: bool,
) -> None:
    """It becomes slower, and that is all."""
    experiment = f"F07, the {form} loses {percent} %"
    if not kernel.can_lose():
        figure = "iptables cannot be used here: the kernel's form was not tried"
        record.note("F07", figure, "both forms where it can", True)
    pods.start_pods(stage.direct(namespace))
    kas, other = stage.kas
    agentk = stage.agentk(at=[kas])
    way = stage.way(other)
    eventually(lambda: stage.answers(way), what="the agent is reached")
    kubectl = stage.kubectl(other, namespace)
    kubectl.ok("get", "pods")
    with (
        loss(stage, form, percent / 100),
        clients.Events(control_plane, namespace, 5) as events,
        clients.watches(way, 10, namespace, control_plane) as watches,
        clients.gets(way, 50) as load,
    ):
        megabytes *= 12 if long else 1
        speed, pause = followers.bulk(kubectl, megabytes, grown=megabytes / 6)
        time.sleep(20 if long else 3)
        load.stop()
        events.stop()
        time.sleep(2)
    figures.requests_answered(record, experiment, load.seen, within=STALL)
    record.note(
        experiment,
        f"one stream beside them: {speed / 1e6:.1f} MB/s, longest pause {pause:.1f} s",
        f"no pause longer than {STALL} s",
        in_time=pause <= STALL,
    )
    figures.watches_complete(record, experiment, watches.seen, events.made)
    assert agentk.process is not None
    connected = agentk.process.said().count("connected to kas")
    record.note(experiment, f"{connected} connection", "1: it is kept", connected == 1)
