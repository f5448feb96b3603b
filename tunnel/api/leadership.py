"""Election of one replica of an agent, for work that only one of them may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from zope.interface import Attribute, Interface

__all__ = ["ILeadership"]


class ILeadership(Interface):
    """Leader election among the replicas of an agent: `IAgentModuleApi.leadership`."""

    leads: bool = Attribute(
        "Whether this agentk is the leader now among the replicas of its agent.  Check "
        "again before each change that must not be made twice, because the process "
        "may have been frozen."
    )

    lease: str = Attribute(
        "``namespace/name`` of the Lease that elects the leader; replicas with another "
        "Lease have another leader.  Empty until kas has sent the agent's id."
    )

    def lead(run: Callable[[], Awaitable[None]]) -> None:
        """
        Call *run* whenever this agentk is the leader, until the module stops.

        When agentk stops being the leader, it cancels *run*, which should then end
        soon, because the next leader waits for its end.  After a failure, agentk calls
        *run* again, with backoff.
        """
