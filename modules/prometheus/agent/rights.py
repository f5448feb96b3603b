"""The right of a user to ask a Service: the one that kubectl would need."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

from modules.prometheus.agent.services import ServiceTarget
from tunnel.api import Access, IKubernetes
from tunnel.errors import CallError, Status
from tunnel.kubernetes import is_allowed
from tunnel.toolkit.recent import Recent

__all__ = ["AskingRights"]

#: Lifetime of an answer of the API server, in seconds.
ALLOWED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 10.0

#: Maximum number of remembered answers: users of one cluster, and a few Services.
MAX_ANSWERS: Final = 10_000

_Key = tuple[str, Hashable, str]


@attrs.frozen
class _Answer:
    allowed: bool
    at: float


class AskingRights:
    """Reviews of users by the API server, and their recent results."""

    def __init__(self, kubernetes: IKubernetes, clock: IReactorTime) -> None:
        self._kubernetes = kubernetes
        self._clock = clock
        self._answers: Recent[_Key, _Answer] = Recent(MAX_ANSWERS)

    async def check(self, access: Access | None, target: ServiceTarget) -> None:
        """
        Check that a user may ask a Service.

        :raises CallError: PERMISSION_DENIED with the missing right; other statuses if
            the API server did not answer.
        """
        # Rights can be for the name of a Service, or for the name with its port, as in
        # the paths of kubectl.
        names = (
            target.name,
            f"{target.name}:{target.port_text}",
            f"{target.scheme}:{target.name}:{target.port_text}",
        )
        key = f"{target.namespace}/{names[-1]}"
        for name in names:
            if await self._is_allowed(
                access, f"{key} {name}", target.namespace, name, "get", "proxy"
            ):
                return
        who = access.who if access is not None else "the caller"
        raise CallError(
            Status.PERMISSION_DENIED,
            f"{who} may not ask {target.service}: the right to get services/proxy is "
            f"missing; 'kubectl auth can-i get services/{target.name} "
            f"--subresource=proxy -n {target.namespace}' shows it",
        )

    async def may_list_services(self, access: Access) -> bool:
        """
        Return whether a user may list the Services of all namespaces.

        :raises CallError: the API server did not answer.
        """
        return await self._is_allowed(access, "list", "", "", "list", "")

    async def _is_allowed(
        self,
        access: Access | None,
        what: str,
        namespace: str,
        name: str,
        verb: str,
        subresource: str,
    ) -> bool:
        client = self._kubernetes.acting_for(access)
        assert access is not None
        key = (access.credential_id, access.impersonated, what)
        found = self._answers.get(key)
        now = self._clock.seconds()
        if found is not None:
            lasts = ALLOWED_SECONDS if found.allowed else DENIED_SECONDS
            if now - found.at < lasts:
                return found.allowed
        allowed = await is_allowed(
            client,
            verb,
            "services",
            subresource=subresource,
            namespace=namespace,
            name=name,
        )
        self._answers[key] = _Answer(allowed, now)
        return allowed
