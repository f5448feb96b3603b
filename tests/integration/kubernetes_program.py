"""Plays `tests.tunnel.kubernetes.scenario` with the API server of a kubeconfig."""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from agentk.kubernetes.cluster import find_cluster
from tests.tunnel.kubernetes.scenario import play
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients


def main(reactor: Any, kubeconfig: str, namespace: str) -> Deferred[None]:
    async def run() -> None:
        cluster = find_cluster(reactor, time.time, kubeconfig, None, os.environ)
        pool = UpstreamPool(cluster.endpoint, reactor)
        clients = KubernetesClients(cluster, pool, reactor, random.random)
        await play(clients.as_agentk(), namespace)
        # The API server of the tests is new enough.
        assert clients.initial_events.are_streamed("")
        pool.close()

    return Deferred.fromCoroutine(run())


if __name__ == "__main__":
    react(main, sys.argv[1:])
