"""What is there at the start: one node, and three pods to try things with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from demo.sandbox.discovery import VERSION
from demo.sandbox.store import KINDS, Store

__all__ = ["PODS", "fill"]

#: Namespace, name, and what the pod is for.
PODS = (
    ("default", "shell", "exec: a shell of this machine"),
    ("default", "ticker", "logs: writes a line twice a second"),
    ("kube-system", "sandbox", "logs: the requests to this server"),
)

_NODE_INFO = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)


def fill(store: Store, now: Callable[[], str]) -> None:
    """Put everything into an empty store."""
    for name in ("default", "kube-system"):
        store.create(KINDS["namespaces"], "", {"metadata": {"name": name}})
    node = {
        "metadata": {
            "name": "sandbox",
            "labels": {"kubernetes.io/hostname": "sandbox"},
        },
        "spec": {},
        "status": {
            "conditions": [_condition("Ready", now())],
            # Clients with strict types want all of them.
            "nodeInfo": dict.fromkeys(_NODE_INFO, "") | {"kubeletVersion": VERSION},
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        },
    }
    store.create(KINDS["nodes"], "", node)
    for namespace, name, purpose in PODS:
        store.create(KINDS["pods"], namespace, _pod(name, purpose, now()))
    about = {
        "metadata": {"name": "about"},
        "data": {"sandbox": "A stand-in for a Kubernetes API server, for the demo."},
    }
    store.create(KINDS["configmaps"], "default", about)


def _condition(kind: str, since: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": since}


def _pod(name: str, purpose: str, now: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {"app": name},
            "annotations": {"purpose": purpose},
        },
        "spec": {
            "nodeName": "sandbox",
            "restartPolicy": "Always",
            "containers": [{"name": name, "image": "none/of-any-kind"}],
        },
        "status": {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "hostIP": "127.0.0.1",
            "startTime": now,
            "conditions": [
                _condition(kind, now)
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": name,
                    "image": "none/of-any-kind",
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                    "lastState": {},
                }
            ],
        },
    }
