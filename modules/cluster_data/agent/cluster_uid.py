"""The uid of the cluster, which changes if an agent moves to another cluster."""

from __future__ import annotations

from tunnel.api import IKubernetes, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["ClusterUid"]

#: The namespace that exists in every cluster, and whose uid identifies the cluster.
_NAMESPACE = "kube-system"

#: Path and body of a review that every account may create; its answer has the uid of
#: agentk's ServiceAccount.
_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_BODY = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

#: Errors that mean that the uid cannot be read; others pass.
_UNREADABLE = (Status.PERMISSION_DENIED, Status.NOT_FOUND)

_NAMESPACES = KubernetesResource("", "v1", "Namespace", "namespaces", False)


class ClusterUid:
    """
    The uid of the cluster next to agentk, which agentk reads once.

    An agentk that may read only some namespaces takes the uid of its ServiceAccount,
    which another cluster does not have either.
    """

    def __init__(self, kubernetes: IKubernetes) -> None:
        self._kubernetes = kubernetes
        self._uid: str | None = None

    async def read(self) -> str:
        """
        Return the uid; empty if agentk may not read it.

        :raises CallError: the API server did not answer.
        """
        if self._uid is None:
            self._uid = await self._of_namespace() or await self._of_account()
        return self._uid

    async def _of_namespace(self) -> str:
        try:
            found = await self._kubernetes.as_agentk().get(_NAMESPACES, _NAMESPACE)
        except CallError as error:
            if error.status not in _UNREADABLE:
                raise
            return ""
        return str(found["metadata"].get("uid", ""))

    async def _of_account(self) -> str:
        client = self._kubernetes.as_agentk()
        try:
            found = await client.json("POST", _REVIEW, _BODY)
        except CallError as error:
            if error.status not in _UNREADABLE:
                raise
            return ""
        user = found.get("status", {}).get("userInfo", {})
        is_account = str(user.get("username")).startswith("system:serviceaccount:")
        uid = str(user.get("uid", ""))
        return f"account:{uid}" if is_account and uid else ""
