"""Configuration of agents that kas reads from Git."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from zope.interface import Interface

from tunnel.api.agents import ConnectedAgent
from tunnel.api.git import GitAddress, GitalyAddress

__all__ = ["IConfigurationDelivery", "ISections"]


class IConfigurationDelivery(Interface):
    """
    A capability of server halves: the delivery of agents' configurations from Git.

    kas' module ``agent_configuration`` provides it (`ICapabilities`).
    """

    def delivered(
        agent: ConnectedAgent, address: GitAddress | GitalyAddress, commit: str
    ) -> Awaitable[bool]:
        """
        Wait until an agentk has its configuration at *commit* of a repository.

        A module that sends other content of the same commit to agentk calls this method
        first, so that the configuration and the content take effect together.

        :return: True if agentk has the configuration, or if the agent's configuration
            file is not in this repository; False if the file is in this repository, but
            its branch is at another commit.
        :raises CallError: the configuration cannot be sent now.
        """


class ISections(Interface):
    """The agent's configuration in Git, by section: `IAgentModuleApi.sections`."""

    def follow(section: str, schema: type[Any], apply: Callable[[Any], None]) -> None:
        """
        Call *apply* with a section of the agent's configuration in Git, until the
        module stops: now with the current section, and after each change of the
        section.

        A configuration takes effect as a whole or not at all: agentk first reads the
        section of every module with its schema, and if one is invalid, no module gets
        its section.  *apply* must not fail.  agentk ignores keys that a schema does not
        contain, because the file may be written for a newer version of agentk.

        :param section: the section's key in the file, such as ``gitops``.
        :param schema: an attrs class in which every attribute has a default; if the
            file does not contain the section, all defaults apply.
        """

    def apply(texts: Mapping[str, str]) -> None:
        """
        Put a configuration into effect.

        :param texts: the JSON text of each section in the file.
        :raises ConfigurationError: a module refuses its section; nothing has changed.
        """
