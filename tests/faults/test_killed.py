"""F11: the kas that holds the agent is killed, or the agent's connection is cut."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path as File

import pytest

from tests.faults import clients, figures, followers
from tests.faults.path import Path
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.processes import die_with_parent, eventually

#: Watches and execs beside the requests, as in the experiment's description.
WATCHES, EXECS = 50, 5


def _kill(stage: Stage) -> None:
    process = stage.kas[0].process
    assert process is not None
    process.child.send_signal(signal.SIGKILL)


def _cut(stage: Stage) -> None:
    assert stage.back.cut() >= 1


FAULTS = {"SIGKILL of the gateway": _kill, "a cut of the agent's connection": _cut}


@pytest.mark.parametrize("fault", FAULTS)
def test_under_load(
    fault: str,
    stage: Stage,
    control_plane: ControlPlane,
    namespace: str,
    record: Record,
    long: bool,
) -> None:
    """Those who speak with other kas notice a pause, and nothing else."""
    pods.start_pods(stage.direct(namespace))
    stage.agentk(at=[stage.kas[0]])
    assert stage.spread() == [1, 0, 0]
    front = stage.path([kas.proxy for kas in stage.kas[1:]])
    way = stage.way(front)
    eventually(lambda: stage.answers(way), what="other kas reach the agent")
    rate = 185 if long else 100
    audit = control_plane.audit()
    with ExitStack() as stack:
        events = stack.enter_context(clients.Events(control_plane, namespace, 5))
        watches = stack.enter_context(
            clients.watches(way, WATCHES, namespace, control_plane)
        )
        kubectl = stage.kubectl(front, namespace)
        execs = [
            stack.enter_context(followers.Exec(kubectl, "main", "tick"))
            for _ in range(EXECS)
        ]
        logs = stack.enter_context(
            followers.Follower(kubectl, "logs", "-f", "main", "-c", "tick")
        )
        for one in execs:
            eventually(lambda one=one: one.numbers("got"), what="exec runs")  # type: ignore[misc]
        gets = stack.enter_context(clients.gets(way, rate))
        posts = stack.enter_context(clients.posts(way, 10, namespace, "made"))
        time.sleep(10 if long else 3)
        before = [len(one.numbers("got")) for one in execs]
        FAULTS[fault](stage)
        others = stage.kas if fault != "SIGKILL of the gateway" else stage.kas[1:]
        back = clients.seconds_until(
            lambda: any(stage.agents(kas) for kas in others), 30
        )
        time.sleep(40 if long else 8)
        got, made = gets.stop(), posts.stop()
        events.stop()
        time.sleep(1)
        logs.stop()
        for each in execs:
            each.stop()
        seen = watches.stop()
    experiment = f"F11, {fault}"
    note = partial(record.note, experiment)
    note(f"agent elsewhere after {back:.1f} s", "<= 10 s", back <= 10)
    figures.requests_answered(record, experiment, got)
    figures.posts_done_once(record, experiment, made, audit)
    missing = _missing(control_plane, namespace, made["by_name"])
    note(f"{len(missing)} objects missing after 201", "0", not missing)
    figures.watches_complete(record, experiment, seen, events.made)
    figures.execs_went_on(record, experiment, execs, before)
    note(
        f"logs -f, {len(logs.numbers)} lines: {logs.problems or 'none lost'}",
        "none lost or repeated",
        not logs.problems,
    )


def test_requests_in_flight(
    stage: Stage, control_plane: ControlPlane, namespace: str, record: Record
) -> None:
    """What changes something is done once, or answered cleanly; never done twice."""
    stage.agentk(at=[stage.kas[0]])
    front = stage.path([kas.proxy for kas in stage.kas[1:]])
    way = stage.way(front)
    eventually(lambda: stage.answers(way), what="other kas reach the agent")
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    audit = control_plane.audit()
    experiment = "F11, in flight"
    note = partial(record.note, experiment)
    with ExitStack() as stack:
        # So that some are on their way at every moment.
        stage.back.delay = 0.15
        gets = stack.enter_context(clients.gets(way, 40))
        posts = stack.enter_context(clients.posts(way, 40, namespace, "made"))
        halves = []
        for number in range(10):
            body = b'{"metadata": {"name": "half-%06d"}}' % number
            connection = stack.enter_context(way.connect())
            length = f"Content-Length: {len(body)}"
            kind = "Content-Type: application/json"
            connection.send(way.head("POST", target, length, kind) + body[:10])
            halves.append((f"half-{number:06}", connection, body))
        time.sleep(2)
        _kill(stage)
        stage.back.delay = 0
        time.sleep(0.5)
        outcomes = {}
        for name, connection, body in halves:
            connection.send(body[10:])
            answer = connection.answer("POST")
            assert answer.status < 300 or b'"Status"' in answer.body
            outcomes[name] = str(answer.status)
        time.sleep(5)
        got, made = gets.stop(), posts.stop()
    outcomes.update(made["by_name"])
    counts = {one: list(outcomes.values()).count(one) for one in outcomes.values()}
    figures.requests_answered(record, experiment, got)
    note(f"POSTs: {counts}", "201, 502 or 503", counts.keys() <= figures.CLEAN)
    assert "502" in counts, "no request was in flight"
    twice = figures.tried_twice(audit, outcomes)
    note(f"{len(twice)} of them done twice {twice[:3]}", "0", not twice)
    missing = _missing(control_plane, namespace, outcomes)
    note(f"{len(missing)} objects missing after 201", "0", not missing)


@pytest.mark.parametrize("fault", FAULTS)
def test_copy(
    fault: str,
    stage: Stage,
    control_plane: ControlPlane,
    namespace: str,
    record: Record,
    long: bool,
    tmp_path: File,
) -> None:
    """``kubectl cp`` of a large file, up and down, and ``get -w`` beside it."""
    pods.start_pods(stage.direct(namespace))
    stage.agentk(at=[stage.kas[0]])
    front = stage.path([kas.proxy for kas in stage.kas[1:]])
    way = stage.way(front)
    eventually(lambda: stage.answers(way), what="other kas reach the agent")
    kubectl = stage.kubectl(front, namespace)
    size, rate = (1000, 60e6) if long else (100, 40e6)
    large = pods.random_file(tmp_path / "large", size)
    wanted = pods.digest(large)
    back = tmp_path / "back"
    inside = stage.direct(namespace)
    with ExitStack() as stack:
        watch = stack.enter_context(
            followers.Follower(
                kubectl,
                "get",
                "configmaps",
                "-w",
                "-o=name",
                "--watch-only",
                word="event",
            )
        )
        time.sleep(1)
        events = stack.enter_context(clients.Events(control_plane, namespace, 5))
        stage.back.rate = rate
        for way_of, source, target in (
            ("up", str(large), "main:large"),
            ("down", "main:large", str(back)),
        ):
            begin = time.monotonic()
            child = subprocess.Popen(
                kubectl.command("cp", pods.RETRIES, source, target, "-c", "echo"),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=kubectl.environment(),
                preexec_fn=die_with_parent,
            )
            stack.callback(child.kill)
            _on_its_way(child, stage.back, size * 1e6 / 3)
            FAULTS[fault](stage)
            out, _ = child.communicate(timeout=240)
            took = time.monotonic() - begin
            if way_of == "up":
                found = inside.ok(
                    "exec", "main", "-c", "echo", "--", "sha256sum", "large"
                )
                same = found.split()[0] == wanted
            else:
                same = back.exists() and pods.digest(back) == wanted
            record.note(
                f"F11, {fault}",
                f"cp of {size} MB {way_of}: exit {child.returncode}, "
                f"{'equal' if same else 'OTHER'} checksum, {took:.0f} s, "
                f"{out.count(b'Resuming copy')} resumed by kubectl {out[-300:]!r}",
                "exit 0, equal checksum",
                same and child.returncode == 0,
            )
            if fault == "SIGKILL of the gateway":
                process = stage.kas[0].process
                assert process is not None
                process.kill()
                stage.kas[0].start()
                # Back to where the next fault will be.
                stage.back.targets = [stage.kas[0].agents]
                stage.back.cut()
                eventually(lambda: stage.spread() == [1, 0, 0], what="agentk is back")
                stage.back.targets = [kas.agents for kas in stage.kas]
        events.stop()
        eventually(lambda: len(watch.numbers) >= len(events.made), what="all events")
        watch.stop()
    record.note(
        f"F11, {fault}",
        f"get -w of {len(events.made)} events: {watch.problems or 'none lost'}",
        "none lost or repeated",
        not watch.problems and len(watch.numbers) == len(events.made),
    )


def _on_its_way(child: subprocess.Popen[bytes], path: Path, size: float) -> None:
    """Until *size* more bytes have passed, while *child* runs."""
    enough = path.passed + size
    eventually(lambda: child.poll() is not None or path.passed > enough, what="bytes")
    assert child.poll() is None, child.communicate()[0]


def _missing(plane: ControlPlane, namespace: str, by_name: dict[str, str]) -> list[str]:
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    there = {one["metadata"]["name"] for one in plane.call("GET", target)["items"]}
    return [n for n, outcome in by_name.items() if outcome == "201" and n not in there]
