"""agentk's half: fetches the configuration from kas and passes it to the modules."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.agent_configuration import rpc_pb2
from tunnel.api import (
    ConfigurationRead,
    ConfigurationRefused,
    Draining,
    IAgentModule,
    IAgentModuleApi,
    IAgentModuleFactory,
    TunnelConnected,
    TunnelDisconnected,
)
from tunnel.errors import CallError, ConfigurationError, Status

__all__ = ["AgentConfigurationAgent", "AgentConfigurationOptions"]

CONFIGURATION = rpc_pb2.DESCRIPTOR.services_by_name["AgentConfiguration"]

#: Seconds before the next attempt to reach kas: first and maximum, the same as in
#: GitLab's agent.
RETRY_FIRST, RETRY_MOST = 10.0, 300.0

#: Maximum seconds for a report to kas that agentk has refused a configuration.
TELL_TIMEOUT = 10.0

#: Statuses that mean that a kas has no configuration for agents; another kas may have
#: one.
_NOTHING = (Status.UNIMPLEMENTED, Status.FAILED_PRECONDITION)

#: Fields of the message that are not sections: facts about the agent, and the table of
#: sections without a field of their own.
_NO_SECTIONS = (
    "agent_id",
    "project_id",
    "project_path",
    "gitlab_external_url",
    "more",
)


@attrs.frozen(kw_only=True)
class AgentConfigurationOptions:
    """``modules.agent_configuration`` of agentk: the section has no settings."""


@provider(IAgentModuleFactory)
@implementer(IAgentModule)
class AgentConfigurationAgent:
    """
    agentk's half of the module, which receives the configuration through one stream
    while the tunnel is connected.
    """

    _log = Logger()
    configuration = AgentConfigurationOptions

    def __init__(self, api: IAgentModuleApi) -> None:
        self.name = api.name
        self._api = api
        #: Commit of the configuration that is in effect.
        self._commit = ""
        self._problems: tuple[str, ...] = ()
        self._has_read = False
        self._running: Deferred[Any] | None = None
        api.events.subscribe(TunnelConnected, lambda _: self._begin())
        api.events.subscribe(TunnelDisconnected, lambda _: self._end())
        api.events.subscribe(Draining, lambda _: self._end())

    async def start(self) -> None:
        """Request the configuration at once if the tunnel is already connected."""
        if self._api.agent_id:
            self._begin()

    async def stop(self) -> None:
        """Stop following the configuration."""
        self._end()

    def _begin(self) -> None:
        self._end()
        self._running = running = Deferred.fromCoroutine(self._follow())
        running.addErrback(self._failed)

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    def _failed(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("following the configuration failed", failure)
            self._api.fail(failure.value)

    async def _follow(self) -> None:
        pause = RETRY_FIRST
        while True:
            has_received = False
            try:
                async for response in self._api.calls.client(CONFIGURATION).stream(
                    "GetConfiguration",
                    rpc_pb2.ConfigurationRequest(commit_id=self._commit),
                ):
                    has_received = True
                    await self._received(response)
            except CallError as error:
                if error.status in _NOTHING:
                    self._log.debug(
                        "Git has no configuration for this agent: {reason}",
                        reason=error.message,
                    )
                    self._complain(())
                    self._note_read()
                    return
                self._log.info(
                    "cannot get the configuration in Git from kas ({reason}); the "
                    "previous configuration stays in effect",
                    reason=error.message,
                )
            pause = RETRY_FIRST if has_received else min(pause * 2, RETRY_MOST)
            await deferLater(self._api.clock, pause * (0.5 + self._api.random() / 2))

    async def _received(self, response: rpc_pb2.ConfigurationResponse) -> None:
        if not response.HasField("configuration"):
            self._complain(tuple(response.problems))
        elif refused := self._apply(response):
            self._complain(refused)
            await self._tell(response.commit_id, refused)

    def _apply(self, response: rpc_pb2.ConfigurationResponse) -> tuple[str, ...]:
        """
        Apply the configuration; return the reasons why it is not in effect, or an empty
        tuple if it is in effect.
        """
        configuration = response.configuration
        texts = dict(configuration.more)
        texts |= {
            field.name: getattr(configuration, field.name)
            for field in configuration.DESCRIPTOR.fields
            if field.name not in _NO_SECTIONS
        }
        commit = response.commit_id
        try:
            self._api.sections.apply(texts)
        except ConfigurationError as error:
            return tuple(f"commit {commit[:12]}: {one}" for one in error.problems)
        self._commit = commit
        self._complain(())
        self._note_read()
        self._log.info(
            "the configuration of commit {commit} is in effect", commit=commit
        )
        return ()

    async def _tell(self, commit: str, problems: tuple[str, ...]) -> None:
        """Report the refusal to kas, so that operators see the problems there, too."""
        request = rpc_pb2.RefusedRequest(commit_id=commit, problems=problems)
        try:
            await self._api.calls.client(CONFIGURATION).call(
                "Refused", request, timeout=TELL_TIMEOUT
            )
        except CallError as error:
            self._log.debug(
                "kas did not accept the report of a refused configuration: {reason}",
                reason=error.message,
            )

    def _note_read(self) -> None:
        if not self._has_read:
            self._has_read = True
            self._api.events.publish(ConfigurationRead())

    def _complain(self, problems: tuple[str, ...]) -> None:
        if problems == self._problems:
            return
        self._problems = problems
        self._api.events.publish(ConfigurationRefused(problems))
        for problem in problems:
            self._log.error(
                "the configuration in Git is invalid; the previous configuration stays "
                "in effect: {problem}",
                problem=problem,
            )
