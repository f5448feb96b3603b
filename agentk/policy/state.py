"""The state of the policy in the cluster: its uid, the highest serial, and roles."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from agentk.policy.floor import STATE_SECRET, ProtectedObject
from agentk.policy.policy_secret import PolicySecret
from tunnel.api import IKubernetesClient, KubernetesResource
from tunnel.errors import ConfigurationError

__all__ = ["ClusterState"]

_NAMESPACES: Final = KubernetesResource("", "v1", "Namespace", "namespaces", False)
_ROLES: Final = "rbac.authorization.k8s.io"
_BINDINGS: Final = (
    KubernetesResource(
        _ROLES, "v1", "ClusterRoleBinding", "clusterrolebindings", False
    ),
    KubernetesResource(_ROLES, "v1", "RoleBinding", "rolebindings", True),
)
_REVIEW: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

#: Maximum number of bindings that are read, and of objects that are protected.
MAX_BINDINGS: Final = 20_000
MAX_OBJECTS: Final = 500


@attrs.define(eq=False)
class ClusterState:
    """
    Reader and writer of the state.

    :param client: a client with agentk's own permissions and without a guard.
    :param namespace: agentk's own namespace.
    """

    _client: IKubernetesClient
    _namespace: str

    async def uid(self) -> str:
        """
        Return the uid of the cluster.

        :raises CallError: agentk cannot read it.
        """
        found = await self._client.get(_NAMESPACES, "kube-system")
        return str(found["metadata"].get("uid", ""))

    async def accept(self, serial: int, digest: str) -> None:
        """
        Record a policy, unless a newer one was in effect before.

        :raises ConfigurationError: it is older, or differs from the policy with the
            same serial.
        :raises CallError: the serial cannot be read or written.
        """

        def change(before: Mapping[str, Any] | None) -> Mapping[str, bytes] | None:
            highest, known = self._parsed(before)
            if serial < highest:
                raise ConfigurationError(
                    [
                        f"the serial {serial} is lower than {highest}, which was in "
                        "effect before; raise it, and sign the file again"
                    ]
                )
            if serial == highest and known != digest:
                raise ConfigurationError(
                    [
                        f"another policy had the serial {serial}; raise it, and sign "
                        "the file again"
                    ]
                )
            if serial == highest:
                return None
            return {"serial": str(serial).encode(), "digest": digest.encode()}

        why = (
            f"agentk keeps the highest serial in the Secret {self._namespace}/"
            f"{STATE_SECRET}; grant it get, create and update"
        )
        secret = PolicySecret(self._client, self._namespace, STATE_SECRET, why)
        await secret.update(change)

    def _parsed(self, data: Mapping[str, Any] | None) -> tuple[int, str]:
        """Return the serial and the digest in the Secret."""
        if data is None:
            return -1, ""
        try:
            serial = int(base64.b64decode(data["serial"], validate=True))
            return serial, base64.b64decode(data["digest"], validate=True).decode()
        except (KeyError, ValueError, binascii.Error):
            raise ConfigurationError(
                [
                    f"the Secret {self._namespace}/{STATE_SECRET} is damaged; find out "
                    "who changed it, and delete it"
                ]
            ) from None

    async def own_roles(self) -> frozenset[ProtectedObject]:
        """
        Return the roles that are bound to agentk's account or its groups, and their
        bindings.

        :raises CallError: agentk may not read them.
        """
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "SelfSubjectReview",
        }
        answer = await self._client.json("POST", _REVIEW, review)
        user = answer["status"]["userInfo"]
        own = {("User", str(user["username"]))}
        own.update(("Group", str(one)) for one in user.get("groups") or ())
        objects: set[ProtectedObject] = set()
        for resource in _BINDINGS:
            seen = 0
            async for page in self._client.list(resource):
                for binding in page:
                    if not own.isdisjoint(_subjects(binding)):
                        objects.update(_protected(resource.name, binding))
                seen += len(page)
                if seen > MAX_BINDINGS or len(objects) > MAX_OBJECTS:
                    break
        return frozenset(objects)


def _subjects(binding: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the kind (User or Group) and the name of each subject of a binding."""
    for one in binding.get("subjects") or ():
        name = str(one.get("name", ""))
        if one.get("kind") == "ServiceAccount":
            yield "User", f"system:serviceaccount:{one.get('namespace', '')}:{name}"
        else:
            yield str(one.get("kind", "")), name


def _protected(resource: str, binding: dict[str, Any]) -> Iterator[ProtectedObject]:
    """Yield a binding, and its role."""
    metadata, role = binding["metadata"], binding["roleRef"]
    namespace = str(metadata.get("namespace", ""))
    yield _ROLES, resource, namespace, str(metadata["name"])
    if role.get("kind") == "ClusterRole":
        yield _ROLES, "clusterroles", "", str(role["name"])
    else:
        yield _ROLES, "roles", namespace, str(role["name"])
