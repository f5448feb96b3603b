"""The uid of the cluster, which changes if an agent moves to another cluster."""

from __future__ import annotations

from tunnel.api import IKubernetes, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["ClusterUid"]

#: The namespace that exists in every cluster, and whose uid identifies the cluster.
_NAMESPACE = "kube-system"
_NAMESPACES = KubernetesResource("", "v1", "Namespace", "namespaces", False)


class ClusterUid:
    """The uid of the cluster next to agentk, which agentk reads once."""

    def __init__(self, kubernetes: IKubernetes) -> None:
        self._kubernetes = kubernetes
        self._uid: str | None = None

    async def read(self) -> str:
        """
        Return the uid; empty if agentk may not read it.

        :raises CallError: the API server did not answer.
        """
        if self._uid is None:
            client = self._kubernetes.as_agentk()
            try:
                found = await client.get(_NAMESPACES, _NAMESPACE)
            except CallError as error:
                if error.status not in (Status.PERMISSION_DENIED, Status.NOT_FOUND):
                    raise
                found = {"metadata": {}}
            self._uid = str(found["metadata"].get("uid", ""))
        return self._uid
