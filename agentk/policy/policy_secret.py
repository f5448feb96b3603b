"""A Secret in agentk's own namespace, which all replicas of agentk write."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from tunnel.api import IKubernetesClient, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["PolicySecret"]

_SECRETS: Final = KubernetesResource("", "v1", "Secret", "secrets", True)

#: Attempts to write a Secret while other replicas of agentk write it, too.
ATTEMPTS: Final = 3


@attrs.define(eq=False)
class PolicySecret:
    """
    Reader and writer of a Secret.

    :param client: a client with agentk's own permissions and without a guard.
    :param namespace: agentk's own namespace.
    :param why: text for an error: why agentk needs which permissions.
    """

    _client: IKubernetesClient
    _namespace: str
    _name: str
    _why: str

    async def update(
        self, change: Callable[[Mapping[str, Any] | None], Mapping[str, bytes] | None]
    ) -> None:
        """
        Change the content, again from the start if another replica was faster.

        :param change: returns the new content for ``data`` of the Secret, in base64,
            or for None if there is no Secret; None if nothing is to change.
        :raises CallError: agentk cannot read or write the Secret.
        """
        for left in reversed(range(ATTEMPTS)):
            try:
                version, before = await self._read()
            except CallError as error:
                raise self._explained(error) from None
            after = change(before)
            if after is None:
                return
            try:
                await self._write(version, after)
            except CallError as error:
                raced = (Status.ABORTED, Status.ALREADY_EXISTS)
                if error.status not in raced or not left:
                    raise self._explained(error) from None
            else:
                return

    async def _read(self) -> tuple[str, Mapping[str, Any] | None]:
        """Return the version and the content; nothing if there is no Secret."""
        try:
            found = await self._client.get(_SECRETS, self._name, self._namespace)
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                return "", None
            raise
        version = str(found["metadata"].get("resourceVersion", ""))
        return version, found.get("data") or {}

    async def _write(self, version: str, data: Mapping[str, bytes]) -> None:
        metadata = {"name": self._name, "namespace": self._namespace}
        method, path = "POST", f"/api/v1/namespaces/{self._namespace}/secrets"
        if version:
            metadata["resourceVersion"] = version
            method, path = "PUT", f"{path}/{self._name}"
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "data": {
                key: base64.b64encode(value).decode() for key, value in data.items()
            },
        }
        await self._client.json(method, path, body)

    def _explained(self, error: CallError) -> CallError:
        if error.status is not Status.PERMISSION_DENIED:
            return error
        return CallError(error.status, f"{self._why}: {error.message}")
