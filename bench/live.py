"""
`python -m bench.live [PODS [CLUSTERS [CHANGES]]]`: live data.

Three parts: the memory and the time of the cache of agentk for many pods; the time of
queries in kas for many clusters with a hundred workloads each; and the time from a
change in a real cluster until a client of ActionCable has it.  The last part needs the
binaries that `make kube` builds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from modules.cluster_data.agent.cache import ClusterCache
from modules.cluster_data.agent.view_registry import OWN_VIEWS
from modules.cluster_data.agent.views.problems import POD
from modules.cluster_data.server.store.queries import RowQuery, find_rows
from modules.cluster_data.server.store.row_store import Publication, RowStore
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tests.integration import cluster, needs
from tests.integration.cable_client import CableSocket
from tests.integration.cluster import ControlPlane
from tests.integration.stack import Agentk, Kas
from tests.modules.cluster_data.pair import ThreadedClock
from tools.ports import free_port
from tunnel.api import AgentScope, KubernetesResource, WatchEvent, WatchEventType

PODS, CLUSTERS, CHANGES = 50_000, 10_000, 100

#: Number of workloads of each cluster.
WORKLOADS = 100

#: Number of runs of each query.
RUNS = 20

_SPACE = "bench-live"


def _resident() -> float:
    """Return the resident MiB of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _pod(number: int) -> bytes:
    """Return a pod of 5 KB, of which every fiftieth is not ready."""
    ready = "False" if number % 50 == 0 else "True"
    app = f"web-{number // 10}"
    containers = [
        {
            "name": name,
            "image": f"registry.example.org/{name}:1",
            "env": [{"name": f"E{one}", "value": "v" * 30} for one in range(20)],
        }
        for name in ("main", "side")
    ]
    running = {"ready": True, "restartCount": 0, "state": {"running": {}}}
    found = {
        "metadata": {
            "name": f"{app}-7d9f8b6c5d-{number:06x}",
            "namespace": f"team-{number % 200}",
            "uid": f"{number:08x}-aaaa-bbbb-cccc-{number:012x}",
            "resourceVersion": str(number),
            "creationTimestamp": "2026-11-23T00:00:00Z",
            "labels": {"app": app, "pod-template-hash": "7d9f8b6c5d"},
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": app, "uid": "x" * 36, "controller": True}
            ],
            "managedFields": [
                {"fieldsV1": {f"f:{one}": {} for one in range(120)}},
            ],
        },
        "spec": {"nodeName": f"node-{number % 2000}", "containers": containers},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [
                {"name": name, **running} for name in ("main", "side")
            ],
        },
    }
    return json.dumps(found).encode()


class _Watch:
    """A client whose only watch yields pods."""

    def __init__(self, pods: int) -> None:
        self._pods = pods
        self.seconds = 0.0

    def as_agentk(self) -> _Watch:
        return self

    async def resource(self, api_version: str, kind: str) -> KubernetesResource:
        if kind != POD.kind:
            await Deferred()
        verbs = frozenset(["list", "watch"])
        return KubernetesResource("", "v1", "Pod", "pods", True, verbs)

    async def follow(self, resource: Any, namespace: str, shape: Any) -> Any:
        decode = msgspec.json.Decoder(shape).decode
        yield WatchEvent(WatchEventType.RESET)
        for number in range(self._pods):
            text = _pod(number)
            began = time.process_time()
            yield WatchEvent(WatchEventType.ADDED, decode(text))
            self.seconds += time.process_time() - began
        yield WatchEvent(WatchEventType.SYNCED)
        await Deferred()


def cache_of(pods: int) -> dict[str, float]:
    """Return the figures of the cache."""
    watch = _Watch(pods)
    views = [one for one in OWN_VIEWS if POD in one.kinds]
    cache = ClusterCache(
        cast(Any, watch),
        views,
        128 * 2**20,
        Clock(),
        lambda: 0.5,
        time.time,
        lambda view: None,
        AgentScope(),
    )
    # Only pods are watched.
    cache.kinds = {POD: cache.kinds[POD]}
    before = _resident()
    running = Deferred.fromCoroutine(cache.run())
    running.addErrback(lambda failure: None)
    figures = {
        "cache: pods": float(len(cache.kinds[POD].objects)),
        "cache: CPU us for each pod": watch.seconds / pods * 1e6,
        "cache: MiB of RSS": _resident() - before,
        "cache: MiB accounted": cache.size / 2**20,
    }
    running.cancel()
    return figures


def store_of(clusters: int, folder: Path) -> dict[str, float]:
    """Return the figures of the store."""
    store = RowStore(
        folder / "rows.sqlite", ThreadedClock(), time.time, lambda error: None
    )
    _now(store.start())
    before, began = _resident(), time.monotonic()
    for number in range(clusters):
        one = Publication(str(number), f"cluster-{number}", b"call")
        hello = wire.Hello(epoch=b"e", cluster_uid=str(number))
        _now(store.welcome(one, hello))
        rows = [_workload(number, count) for count in range(WORKLOADS)]
        snapshot = wire.Snapshot(
            view="workloads", sequence=1, first=True, last=True, rows=rows
        )
        _now(store.snapshot(one, snapshot))
    rows_in_all = clusters * WORKLOADS
    figures = {
        "store: rows": float(rows_in_all),
        "store: rows a second": rows_in_all / (time.monotonic() - began),
        "store: MiB of RSS": _resident() - before,
        "store: MiB of files": sum(one.stat().st_size for one in folder.iterdir())
        / 2**20,
    }
    for name, conditions in (
        ("label", {"label_selector": "app=web-7"}),
        ("two labels", {"label_selector": "app=web-7,env=test"}),
        ("image", {"image": "web:7"}),
        ("name", {"kind": "deployments", "name": "web-7"}),
        ("one cluster", {"agents": ["7"]}),
    ):
        query = RowQuery(view="workloads", **cast(Any, conditions))
        times = sorted(
            _timed(partial(store.read, partial(find_rows, query=query, scopes=None)))
            for _ in range(RUNS)
        )
        figures[f"store: ms for {name}, p50"] = times[RUNS // 2]
        figures[f"store: ms for {name}, max"] = times[-1]
    _now(store.stop())
    return figures


def _workload(cluster_number: int, count: int) -> wire.Row:
    columns = {
        "health": "current" if count % 20 else "failed",
        "state": "current",
        "created": "2026-11-23T00:00:00Z",
        "labels": {
            "app": f"web-{count}",
            "env": "prod" if cluster_number % 10 else "test",
        },
        "images": [f"registry.example.org/web:{cluster_number % 50}"],
        "ready": 1,
        "wanted": 1,
    }
    key = wire.RowKey(
        group="apps",
        kind="Deployment",
        namespace=f"n-{count % 10}",
        name=f"web-{count}",
    )
    text = json.dumps(columns).encode()
    return wire.Row(key=key, resource="deployments", columns=text)


def _now(work: Any) -> Any:
    """Return the result of a coroutine that needs no time."""
    results: list[Any] = []
    Deferred.fromCoroutine(work).addBoth(results.append)
    (result,) = results
    if hasattr(result, "raiseException"):
        result.raiseException()
    return result


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    _now(work())
    return (time.perf_counter() - began) * 1000


_SETTINGS = """\
modules: {{action_cable: {{}}, cluster_data: {{}}}}
web: {{listen: {{address: "127.0.0.1:{port}", development_certificate: true}}}}
"""


def pushed(plane: ControlPlane, folder: Path, changes: int) -> dict[str, float]:
    """Return the times from a change to a client."""
    port = free_port()
    kas = Kas(folder / "kas", _SETTINGS.format(port=port))
    (folder / "kas").mkdir()
    agentk = Agentk(kas, kas.add_agent("main"), plane.agent)
    options = folder / "agentk.yaml"
    options.write_text("modules: {cluster_data: {}}\n")
    token = folder / "token"
    kas.ctl("user", "add", "a", "--agent", "main", "--as-agent", "--token-file", token)
    kas.start()
    agentk.start("--configuration-file", str(options))
    path = f"/apis/apps/v1/namespaces/{_SPACE}/deployments"
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "web", "image": "example.org/web:0"}],
            "nodeSelector": {"no": "node"},
        },
    }
    made = {
        "metadata": {"name": "web", "namespace": _SPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    plane.call("POST", path, made)
    socket = CableSocket(port, kas.authority, token.read_text().strip())
    socket.subscribe("ClusterChannel", cluster="main", view="workloads")
    key = f"1/apps/Deployment/{_SPACE}/web/"
    times: list[float] = []
    for number in range(1, changes + 1):
        live = plane.call("GET", f"{path}/web")
        image = f"example.org/web:{number}"
        live["spec"]["template"]["spec"]["containers"][0]["image"] = image
        # A controller may have changed the object in the meantime.
        del live["metadata"]["resourceVersion"]
        began = time.monotonic()
        plane.call("PUT", f"{path}/web", live)
        while True:
            message = socket.rows()
            rows = message.get("put") or message.get("snapshot") or {}
            if rows.get(key, {}).get("images") == [image]:
                break
        times.append((time.monotonic() - began) * 1000)
        # Changes of the controllers arrive as well.
        time.sleep(0.2 + number % 10 / 10)
    socket.close()
    agentk.stop()
    kas.stop()
    times.sort()
    return {
        "pushed: ms, p50": times[changes // 2],
        "pushed: ms, p99": times[changes * 99 // 100],
        "pushed: ms, max": times[-1],
    }


def main(pods: int, clusters: int, changes: int) -> None:
    """Print the figures, and write them to build/bench-live.json."""
    folder = Path(tempfile.mkdtemp(prefix="bench-live-"))
    figures = cache_of(pods)
    rows = folder / "rows"
    rows.mkdir()
    figures |= store_of(clusters, rows)
    with cluster.shared(needs.kubernetes(), folder / "control-plane") as plane:
        plane.add_namespace(_SPACE)
        figures |= pushed(plane, folder, changes)
    for name, value in figures.items():
        print(f"{name:36} {value:12.1f}")
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-live.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[1:4]]
    main(*given, *(PODS, CLUSTERS, CHANGES)[len(given) :])
