"""
Events inside one program, each a class of its own.

A module may publish events of its own classes; subscribers are in the same process.
`tunnel.api.kubernetes.KubernetesWrite` is an event as well: agentk's module
``kubernetes_api`` publishes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import attrs
from zope.interface import Interface

from tunnel.api.agents import ConnectedAgent

__all__ = [
    "AgentChanged",
    "AgentConnected",
    "AgentDisconnected",
    "AgentMoved",
    "ConfigurationRead",
    "ConfigurationRefused",
    "CredentialRevoked",
    "Draining",
    "GitPushed",
    "IEvents",
    "TunnelConnected",
    "TunnelDisconnected",
]

_E = TypeVar("_E")


@attrs.frozen
class AgentConnected:
    """In kas: an agentk connected to this kas."""

    agent: ConnectedAgent


@attrs.frozen
class AgentChanged:
    """In kas: an agentk reported new data about itself."""

    agent: ConnectedAgent


@attrs.frozen
class AgentDisconnected:
    """In kas: a connection of an agentk to this kas ended."""

    agent: ConnectedAgent


@attrs.frozen
class AgentMoved:
    """In kas: GitLab moved an agent's project, or changed how kas reads it."""

    agent_id: str


@attrs.frozen
class CredentialRevoked:
    """In kas: a credential is not valid any more."""

    #: As in `tunnel.api.users.Access`.
    credential_id: str


@attrs.frozen
class GitPushed:
    """In kas: a repository has new commits."""

    #: The full path of a project, or the name of a repository.
    project: str


@attrs.frozen
class Draining:
    """In both programs: the program stops, so finish running work and start none."""


@attrs.frozen
class TunnelConnected:
    """In agentk: a connection to a kas is ready."""

    agent_id: str


@attrs.frozen
class TunnelDisconnected:
    """In agentk: a connection to a kas ended."""

    agent_id: str


@attrs.frozen
class ConfigurationRefused:
    """In agentk: the configuration in Git was refused, or is in effect again."""

    #: Reasons why the configuration is not in effect; empty if it is.
    problems: tuple[str, ...]


@attrs.frozen
class ConfigurationRead:
    """
    In agentk: the configuration in Git is in effect for the first time since the start,
    or Git contains none.
    """


class IEvents(Interface):
    """Events of this process: ``api.events`` of both halves."""

    def publish(event: object) -> None:
        """Call each subscriber of the event's class now; subscribers must not wait."""

    def subscribe(
        kind: type[_E], callback: Callable[[_E], object]
    ) -> Callable[[], None]:
        """
        Call *callback* with each event of a class, until the module stops.

        :param kind: the class; events of its subclasses do not count.
        :return: a function that removes the subscription.
        """
