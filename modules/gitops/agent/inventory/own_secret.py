"""
Secret in agentk's own namespace that only agentk writes.

A user who may write Secrets there already has agentk's permissions, because such a user
can obtain the token of agentk's service account.  Therefore data in such a Secret is as
trustworthy as agentk.  Data in a ConfigMap is not, because many users may write
ConfigMaps.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import attrs

from modules.gitops.agent.objects.owner_annotations import OWNER, owner_of
from tunnel.api import IKubernetesClient, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["OWN_LABEL", "OwnSecret"]

_SECRETS = KubernetesResource("", "v1", "Secret", "secrets", True)

#: Label of each Secret: the id of its inventory.
OWN_LABEL = "txkas/gitops-of"


@attrs.define(eq=False)
class OwnSecret:
    """
    Reader and writer of one Secret, which is always read and replaced as a whole.

    :param client: acts as agentk.
    :param namespace: agentk's own Namespace.
    :param inventory_id: the inventory of the Secret's project.
    """

    _client: IKubernetesClient
    namespace: str
    name: str
    _inventory_id: str
    #: Version of the Secret that was last read or written; empty if the Secret did not
    #: exist.
    _version: str = attrs.field(default="", init=False)

    async def read(self) -> dict[str, bytes]:
        """
        Return the data of the Secret; an empty dictionary if the Secret does not exist.

        :raises CallError: FAILED_PRECONDITION if agentk did not write the Secret;
            PERMISSION_DENIED if agentk may not read the Secret.
        """
        try:
            found = await self._client.get(_SECRETS, self.name, self.namespace)
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                self._version = ""
                return {}
            raise self._explained(error) from None
        metadata = found["metadata"]
        owner = owner_of(found)
        labels = metadata.get("labels") or {}
        if owner or labels.get(OWN_LABEL) != self._inventory_id:
            # Without this check, the author of a manifest in Git could give orders.
            why = (
                f"it has {OWNER}: {owner}"
                if owner
                else f"it does not have the label {OWN_LABEL}"
            )
            raise CallError(
                Status.FAILED_PRECONDITION,
                f"agentk did not write the Secret {self.namespace}/{self.name}: {why}; "
                "find out who did, and delete it",
            )
        self._version = metadata["resourceVersion"]
        try:
            return {
                key: base64.b64decode(value, validate=True)
                for key, value in (found.get("data") or {}).items()
            }
        except (binascii.Error, TypeError):
            raise self.unreadable("its data is not base64") from None

    async def write(self, data: Mapping[str, bytes]) -> None:
        """
        Replace the Secret if it is still the version that was last read or written.

        :raises CallError: ABORTED if another client changed the Secret since then;
            PERMISSION_DENIED if agentk may not write the Secret.
        """
        metadata: dict[str, Any] = {
            "name": self.name,
            "namespace": self.namespace,
            "labels": {OWN_LABEL: self._inventory_id},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "data": {
                key: base64.b64encode(value).decode() for key, value in data.items()
            },
        }
        method, path = "POST", f"/api/v1/namespaces/{self.namespace}/secrets"
        if self._version:
            metadata["resourceVersion"] = self._version
            method, path = "PUT", f"{path}/{self.name}"
        try:
            written = await self._client.json(method, path, body)
        except CallError as error:
            raise self._explained(error) from None
        self._version = written["metadata"]["resourceVersion"]

    def unreadable(self, why: str) -> CallError:
        """Return the error for data that agentk did not write."""
        return CallError(
            Status.FAILED_PRECONDITION,
            f"the Secret {self.namespace}/{self.name} cannot be read: {why}; delete "
            "it to start over without orders and history",
        )

    def _explained(self, error: CallError) -> CallError:
        if error.status is not Status.PERMISSION_DENIED:
            return error
        return CallError(
            error.status,
            f"agentk keeps its GitOps records in Secrets of {self.namespace}, but "
            "may not access them: grant get, create and update of secrets there (see "
            f"docs/gitops.rst): {error.message}",
        )
