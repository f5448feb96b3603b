"""What agent halves may do with the API server: a line of JSON for each step."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from agentk.kubernetes.cluster import find_cluster
from tunnel.errors import CallError
from tunnel.http1 import UpstreamPool
from tunnel.interfaces import WatchEvent
from tunnel.kubernetes import KubernetesClient, KubernetesClients

LABEL = "of=the-program"


def say(step: str, found: Any) -> None:
    print(json.dumps([step, found]), flush=True)


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"of": "the-program"},
        },
        "data": data,
    }


async def refused(step: str, asking: Any) -> None:
    try:
        await asking
    except CallError as error:
        say(step, [error.status.name, error.message])
    else:
        say(step, "nothing was refused")


async def following(
    events: AsyncGenerator[WatchEvent, None], count: int
) -> list[list[str]]:
    seen: list[list[str]] = []
    while len(seen) < count:
        event = await anext(events)
        name = event.object["metadata"]["name"] if event.object else ""
        seen.append([event.type.name, name])
    return seen


async def steps(client: KubernetesClient, namespace: str) -> None:
    maps = await client.resource("v1", "ConfigMap")
    say("kind", [maps.api_version, maps.name, maps.namespaced, "patch" in maps.verbs])
    await refused("no kind", client.resource("v1", "Nothing"))
    made = await client.apply(
        config_map(namespace, "a", one="1"), field_manager="first"
    )
    say("applied", made["data"])
    await refused(
        "conflict",
        client.apply(config_map(namespace, "a", one="2"), field_manager="second"),
    )
    dry = await client.apply(
        config_map(namespace, "b"), field_manager="first", dry_run=True
    )
    say("dry", dry["metadata"]["name"])
    await refused("not made", client.get(maps, "b", namespace))
    for name in "cdefg":
        await client.apply(config_map(namespace, name), field_manager="first")
    pages = [
        [one["metadata"]["name"] for one in page]
        async for page in client.list(maps, namespace, label_selector=LABEL, limit=2)
        if page
    ]
    say("pages", pages)
    events = client.watch(maps, namespace, label_selector=LABEL)
    say("there", await following(events, 8))
    changed = await client.patch(maps, "a", {"data": {"two": "2"}}, namespace)
    say("patched", changed["data"])
    await refused(
        "another one", client.delete(maps, "c", namespace, uid="not-this-one")
    )
    await client.delete(maps, "c", namespace)
    await client.delete(maps, "c", namespace)
    say("changes", await following(events, 2))
    await events.aclose()


def main(reactor: Any, kubeconfig: str, namespace: str) -> Deferred[None]:
    async def run() -> None:
        cluster = find_cluster(reactor, time.time, kubeconfig, None, os.environ)
        pool = UpstreamPool(cluster.endpoint, reactor)
        clients = KubernetesClients(cluster, pool, reactor)
        await steps(clients.as_agentk(), namespace)
        pool.close()

    return Deferred.fromCoroutine(run())


if __name__ == "__main__":
    react(main, sys.argv[1:])
