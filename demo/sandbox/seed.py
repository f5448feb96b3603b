"""What is there at the start: three pods to try things with."""

from __future__ import annotations

from typing import Any

from demo.sandbox.store import KINDS, Store

__all__ = ["PODS", "fill"]

#: Namespace, name, and what the pod is for.
PODS = (
    ("default", "shell", "exec: a shell of this machine"),
    ("default", "ticker", "logs: writes a line twice a second"),
    ("kube-system", "sandbox", "logs: the requests to this server"),
)


def fill(store: Store) -> None:
    """Put everything into an empty store."""
    for name in ("default", "kube-system"):
        store.create(KINDS["namespaces"], "", {"metadata": {"name": name}})
    for namespace, name, purpose in PODS:
        store.create(KINDS["pods"], namespace, _pod(name, purpose))
    about = {
        "metadata": {"name": "about"},
        "data": {"sandbox": "A stand-in for a Kubernetes API server, for the demo."},
    }
    store.create(KINDS["configmaps"], "default", about)


def _pod(name: str, purpose: str) -> dict[str, Any]:
    image = {"name": name, "image": "none/of-any-kind"}
    return {
        "metadata": {
            "name": name,
            "labels": {"app": name},
            "annotations": {"purpose": purpose},
        },
        "spec": {"nodeName": "sandbox", "containers": [image]},
        "status": {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                image | {"imageID": "", "ready": True, "restartCount": 0}
            ],
        },
    }
