"""Bugs 2 and 3: an API server that never answers, and requests that go nowhere else."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.faults import clients
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.integration.processes import eventually
from tests.integration.stack import fetch, metric
from tunnel.http1 import UpstreamLimits

#: Seconds that agentk tries to connect, and what the ways there and back may add.
GIVEN_UP = UpstreamLimits().connect_seconds + 2

#: Seconds by which requests to others may be later: that is what was seen on an idle
#: machine; on a busy one, as many times what they took before.
DELAYED, TIMES = 0.05, 2

#: Requests under way, which everybody counts.
GAUGES = ("kas_kubernetes_api_requests_in_flight", "kas_gateway_streams")


#: The agents are at the first, and asked for at the second.
KAS = 2


@contextmanager
def black_hole() -> Iterator[int]:
    """A port where SYN is not answered: the queue of those to accept is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(8):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        time.sleep(0.1)
        with socket.socket() as one, pytest.raises(TimeoutError):
            one.settimeout(0.5)
            one.connect(address)
        yield address[1]


def _kubeconfig(stage: Stage, port: int, folder: Path) -> Path:
    content = yaml.safe_load(stage.plane.agent.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    path.chmod(0o600)
    return path


def _asked(port: int, seconds: float) -> float:
    """How long agentk's readiness takes, but for the slowest twentieth."""
    took = []
    end = time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        assert fetch(port, "/readiness")[0] == 200
        took.append(time.monotonic() - begin)
        time.sleep(0.1)
    return sorted(took)[len(took) * 95 // 100]


@pytest.mark.alone
def test_dials(stage: Stage, record: Record, tmp_path: Path, long: bool) -> None:
    """A thousand dials that come to nothing are bounded, and delay nobody."""
    stage.add_user_for(["hole"])
    token = stage.token_of("hole")
    stage.agentk(at=[stage.kas[0]])
    well, lost = stage.way(stage.kas[1]), stage.way(stage.kas[1], "of-hole")
    eventually(lambda: stage.answers(well))
    seconds = 60 if long else 8
    with black_hole() as port, ExitStack() as stack:
        agentk = stage.fleet.agentk(
            token,
            _kubeconfig(stage, port, tmp_path),
            name="hole",
            address=f"tls://127.0.0.1:{stage.kas[0].agents}",
        )
        with clients.gets(well, 50) as before:
            usual = _asked(agentk.observability, 5)
        # Begun with the first answer: when agentk gives the first of them up, 800 are
        # under way, of the thousand that one user may have.
        loads = [clients.gets(lost, 27, "/readyz", wanted=504) for _ in range(3)]
        for load in loads:
            stack.enter_context(load)
        with clients.gets(well, 50) as beside:
            slow = _asked(agentk.observability, seconds)
        # All at once: each waits for what it has under way, and sends no more.
        with ThreadPoolExecutor(len(loads)) as pool:
            list(pool.map(lambda load: load.stop(), loads))
    requests = sum(load["requests"] for load in loads)
    failed = sum(load["failed"] for load in loads)
    failures = [one for load in loads for one in load["failures"]]
    longest = max(load["longest"] for load in loads)
    later = beside["p99"] - before["p99"]
    record.note(
        "bug 3",
        f"beside {requests} requests to a black hole: p99 of {beside['requests']} "
        f"others {1000 * beside['p99']:.0f} ms, {1000 * before['p99']:.0f} ms before; "
        f"{beside['failed']} failed; its agentk answers within {1000 * slow:.0f} ms, "
        f"{1000 * usual:.0f} ms before",
        f"a thousand, 0 failed, <= 50 ms or {TIMES} times what it was before more",
        not beside["failed"],
        in_time=requests >= 1000
        and later <= max(DELAYED, TIMES * before["p99"])
        and slow - usual <= max(DELAYED, TIMES * usual),
    )
    record.note(
        "bug 2",
        f"each of them ended after {longest:.1f} s at most, {failed} other than by 504 "
        f"{failures[:3] or ''}",
        f"<= {GIVEN_UP:.0f} s, 0",
        not failed,
        in_time=longest <= GIVEN_UP,
    )

    def left() -> dict[str, float]:
        return {
            name: sum(metric(kas.observability, name) for kas in stage.kas)
            for name in GAUGES
        }

    eventually(lambda: not any(left().values()), what="nothing is under way")
    record.note("bug 2", f"left: {left()}", "0", not any(left().values()))
