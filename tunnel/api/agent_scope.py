"""The namespaces that an agent works in: ``scope`` of its configuration in Git."""

from __future__ import annotations

import re
from typing import Final

import attrs

from tunnel.config import field
from tunnel.toolkit.texts import DNS_LABEL

__all__ = ["MAX_SCOPE", "SCOPE", "AgentScope"]

#: Name of the section.
SCOPE: Final = "scope"

#: Maximum number of namespaces: each costs the API server a watch for each kind.
MAX_SCOPE: Final = 20

_NAMESPACE = re.compile(DNS_LABEL)


def _are_namespaces(
    instance: object, attribute: object, value: tuple[str, ...]
) -> None:
    for one in value:
        if _NAMESPACE.fullmatch(one) is None:
            raise ValueError(
                f"{one[:80]!r} cannot be a namespace: at most 63 lower-case letters, "
                "digits and '-'"
            )
    if len(value) > MAX_SCOPE:
        raise ValueError(
            f"may have at most {MAX_SCOPE} namespaces; for more, leave it out, or "
            "share the cluster among several agents"
        )
    if len(set(value)) < len(value):
        raise ValueError("must name each namespace once")


@attrs.frozen(kw_only=True)
class AgentScope:
    """
    ``scope`` of the agent's configuration: the part of the cluster that is the agent's.

    A module follows this section with ``api.sections.follow(SCOPE, AgentScope, …)``,
    and neither reads nor changes anything outside the scope by itself.  Requests of
    users are not limited: their own rights decide.
    """

    namespaces: tuple[str, ...] = field(
        default=(),
        validator=_are_namespaces,
        doc="namespaces that agentk's own features work in; default: the whole cluster",
    )

    @property
    def is_whole_cluster(self) -> bool:
        """Whether the scope has no limit."""
        return not self.namespaces

    def contains(self, namespace: str) -> bool:
        """
        Return whether an object is in the scope.

        :param namespace: the object's namespace; empty for an object without one.
        """
        return not self.namespaces or namespace in self.namespaces

    def why_outside(self, namespace: str) -> str:
        """Return why an object is not in the scope; empty if it is."""
        if self.contains(namespace):
            return ""
        where = f"namespace {namespace}" if namespace else "an object of no namespace"
        return f"{where} is outside of the agent's scope: {', '.join(self.namespaces)}"
