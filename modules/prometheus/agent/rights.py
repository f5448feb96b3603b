"""The right of a user to ask a Service: the one that kubectl would need."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from modules.prometheus.agent.services import ServiceTarget
from tunnel.api import Access, IKubernetes
from tunnel.errors import CallError, Status
from tunnel.kubernetes import ReviewedRights, Right

__all__ = ["AskingRights"]


class AskingRights:
    """Reviews of users by the API server, and their recent results."""

    def __init__(self, kubernetes: IKubernetes, clock: IReactorTime) -> None:
        self._rights = ReviewedRights(kubernetes, clock)

    async def check(self, access: Access | None, target: ServiceTarget) -> None:
        """
        Check that a user may ask a Service.

        :raises CallError: PERMISSION_DENIED with the missing right; other statuses if
            the API server did not answer.
        """
        # Rights can be for the name of a Service, or for the name with its port, as in
        # the paths of kubectl.
        for name in (
            target.name,
            f"{target.name}:{target.port_text}",
            f"{target.scheme}:{target.name}:{target.port_text}",
        ):
            right = Right("get", "services", "", "proxy", target.namespace, name)
            if await self._rights.may(access, right):
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
        return await self._rights.may(access, Right("list", "services"))
