"""Election of the agentk that does the work which only one replica may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from zope.interface import Attribute, Interface

__all__ = ["ILeadership"]


class ILeadership(Interface):
    """Leader election among the replicas of an agent: `IAgentModuleApi.leadership`."""

    leads: bool = Attribute(
        "Whether this agentk leads now, of all that connect as this agent.  Look again "
        "before each change that two must not make: a process may have been frozen."
    )

    lease: str = Attribute(
        "``namespace/name`` of the Lease that says which agentk leads: replicas with "
        "another one do not know of this.  Empty: kas has not named this agent yet."
    )

    def lead(run: Callable[[], Awaitable[None]]) -> None:
        """
        Run *run* whenever this agentk leads, until the module stops.

        agentk cancels it when another replica may lead, which waits for its end: let it
        end soon then.  After a failure it runs again, with growing pauses.
        """
