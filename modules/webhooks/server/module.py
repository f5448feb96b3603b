"""The server half: streams of deliveries to agentk, and requests of operators."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.webhooks.server.config import WebhooksSettings
from modules.webhooks.server.control_server import CONTROL, WebhookControlServer
from modules.webhooks.server.deliveries import (
    AgentDeliveries,
    SharedParts,
    check_targets,
)
from modules.webhooks.server.metrics import WebhookMetrics
from modules.webhooks.server.stored import StoredDeliveries
from modules.webhooks.wire import webhooks_pb2 as wire
from tunnel.api import (
    AgentMoved,
    ConnectedAgent,
    Draining,
    FollowedRefs,
    GitPushed,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
    StoreEventType,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.allowance import Allowance
from tunnel.toolkit.peer_slots import PeerSlots
from tunnel.toolkit.recent import Recent

__all__ = ["WEBHOOKS", "WebhooksServer"]

WEBHOOKS = wire.DESCRIPTOR.services_by_name["Webhooks"]

#: Maximum number of streams of one agent in a period, and the seconds of that period:
#: each stream reads and writes up to a hundred values.  agentk begins one after each
#: change of its targets, and otherwise with backoff.
STREAMS_OF_ONE, STREAMS_SECONDS = 30, 60.0

#: Maximum number of agents whose streams kas counts; it forgets the oldest entry first.
MAX_AGENTS = 10_000

#: Maximum number of refs of one agent that kas reads for the first time at the same
#: time, half of all readers of kas, so that other agents do not wait.
READINGS = 4

#: Seconds before another attempt to watch the store after a failure.
WATCH_AGAIN = 5.0


@provider(IServerModuleFactory)
@implementer(IServerModule)
class WebhooksServer:
    """
    Implementation of `Webhooks`.

    :ivar now: returns the time in seconds since 1970; a test may set another function.
    """

    _log = Logger()
    configuration = WebhooksSettings

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._api = api
        self._settings: WebhooksSettings = api.configuration
        self.now = time.time
        self._refs = FollowedRefs(
            api.git, self._settings.poll_period, api.clock, api.random
        )
        self._stored = StoredDeliveries(api.stores.open("deliveries"))
        #: The deliveries of each agent that is connected to this kas.
        self._agents: dict[str, AgentDeliveries] = {}
        self._allowances: Recent[str, Allowance] = Recent(MAX_AGENTS)
        self._metrics = WebhookMetrics(self._states)
        self._shared = SharedParts(
            api,
            self._settings.repositories,
            self._refs,
            PeerSlots(READINGS),
            self._stored,
            self._metrics,
            lambda: self.now(),
            api.random,
        )
        self._counting = False
        self._watching: Deferred[Any] | None = None
        self._draining = False
        api.calls.handle(WEBHOOKS, self)
        api.calls.handle_external(
            CONTROL, WebhookControlServer(self._stored, api.audit)
        )
        api.events.subscribe(GitPushed, self._pushed)
        api.events.subscribe(AgentMoved, self._moved)
        api.events.subscribe(Draining, self._drain)

    async def start(self) -> None:
        """Register metrics, and follow changes of deliveries by other kas."""
        self._api.metrics.register(self._metrics)
        self._counting = True
        self._watching = watching = Deferred.fromCoroutine(self._watch())
        watching.addErrback(self._failed)

    async def stop(self) -> None:
        """End the streams, and unregister metrics."""
        if self._watching is not None:
            self._watching.cancel()
        for one in tuple(self._agents.values()):
            one.stop()
        self._refs.stop()
        if self._counting:
            self._counting = False
            self._api.metrics.unregister(self._metrics)

    async def get_deliveries(
        self, request: wire.GetDeliveriesRequest, call: Any
    ) -> AsyncIterator[wire.Delivery]:
        """Send each delivery to the leading agentk once an attempt is due."""
        agent: ConnectedAgent = call.agent
        if self._draining:
            return
        check_targets(request.targets)
        self._count(agent)
        before = self._agents.get(agent.agent_id)
        if before is not None:
            # Only the leader opens a stream, so the earlier leader is gone.
            before.end()
        deliveries = AgentDeliveries(self._shared, agent, request.targets)
        self._agents[agent.agent_id] = deliveries
        try:
            await deliveries.start()
            while (delivery := await deliveries.next()) is not None:
                yield delivery
        finally:
            deliveries.stop()
            if self._agents.get(agent.agent_id) is deliveries:
                del self._agents[agent.agent_id]

    def _count(self, agent: ConnectedAgent) -> None:
        """
        Count a stream of an agent.

        :raises CallError: RESOURCE_EXHAUSTED if the agent has begun too many.
        """
        allowance = self._allowances.get(agent.agent_id)
        if allowance is None:
            allowance = Allowance(STREAMS_OF_ONE, STREAMS_SECONDS)
            self._allowances[agent.agent_id] = allowance
        now = self._api.clock.seconds()
        if allowance.wait(now):
            text = f"at most {STREAMS_OF_ONE} streams in {STREAMS_SECONDS:g} s"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        allowance.take(now)

    async def report_attempt(
        self, request: wire.ReportAttemptRequest, call: Any
    ) -> wire.ReportAttemptResponse:
        """Record the result of an attempt."""
        agent: ConnectedAgent = call.agent
        deliveries = self._agents.get(agent.agent_id)
        if deliveries is None or deliveries.agent.instance_id != agent.instance_id:
            text = "this kas does not send deliveries to this agentk"
            raise CallError(Status.FAILED_PRECONDITION, text)
        await deliveries.report(request)
        return wire.ReportAttemptResponse()

    def _states(self) -> Counter[str]:
        return Counter(
            wire.State.Name(state.state).lower()
            for one in self._agents.values()
            for state in one.states
        )

    def _pushed(self, event: GitPushed) -> None:
        settings = self._settings.repositories.get(event.project)
        address = None if settings is None else settings.address
        self._refs.announced(event.project, address)

    def _moved(self, event: AgentMoved) -> None:
        """End the stream of an agent whose project has moved; agentk repeats it."""
        deliveries = self._agents.get(event.agent_id)
        if deliveries is not None:
            deliveries.end()

    def _drain(self, event: Draining) -> None:
        self._draining = True
        for one in self._agents.values():
            one.end()
        self._refs.stop()

    # Changes by other kas

    async def _watch(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._stored.store.watch()) as watch:
                    async for event in watch:
                        if event.type is StoreEventType.RESET:
                            # A stream begins with the values in the store.
                            for one in tuple(self._agents.values()):
                                one.end()
                        elif event.type is StoreEventType.SET:
                            agent_id = self._stored.agent_of(event.key)
                            deliveries = self._agents.get(agent_id)
                            if deliveries is not None:
                                await deliveries.reread(event.key, event.version)
            except CallError as error:
                self._log.warn(
                    "this kas does not receive requests to resend webhooks from other "
                    "kas; retrying: {reason}",
                    reason=error.message,
                )
            await deferLater(self._api.clock, WATCH_AGAIN)

    def _failed(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("following the deliveries failed", failure)
            self._api.fail(failure.value)
