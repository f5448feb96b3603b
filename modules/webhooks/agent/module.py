"""The agent half: fetches deliveries from kas, and posts them, while it leads."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.webhooks.agent.attempt import Attempts
from modules.webhooks.agent.metrics import AttemptMetrics
from modules.webhooks.wire import webhooks_pb2 as wire
from modules.webhooks.wire.settings import WebhooksSection, WebhookTarget
from tunnel.api import (
    SCOPE,
    AgentScope,
    IAgentModule,
    IAgentModuleApi,
    IAgentModuleFactory,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.interruptible import Interruptible

__all__ = ["WebhooksAgent", "WebhooksOptions"]

_WEBHOOKS = wire.DESCRIPTOR.services_by_name["Webhooks"]

#: Seconds before the next attempt to reach kas: first and maximum.
RETRY_FIRST, RETRY_MOST = 2.0, 60.0

#: Maximum number of requests at a time: kas sends at most one for each target.
AT_ONCE = 8

#: Timeout of the report of a result, in seconds, and number of attempts to report it.
#: kas repeats a delivery whose result it does not learn.
REPORT_SECONDS, REPORTS = 10.0, 3

#: Statuses that mean that kas does not have the module.
_NOTHING = (Status.UNIMPLEMENTED, Status.FAILED_PRECONDITION)


@attrs.frozen(kw_only=True)
class WebhooksOptions:
    """``modules.webhooks`` of agentk: the section has no settings."""


@provider(IAgentModuleFactory)
@implementer(IAgentModule)
class WebhooksAgent:
    """
    The agent half of the module ``webhooks``.

    :ivar now: returns the time in seconds since 1970; a test may set another function.
    """

    _log = Logger()
    configuration = WebhooksOptions

    def __init__(self, api: IAgentModuleApi) -> None:
        self.name = api.name
        self._api = api
        self.now = time.time
        self._metrics = AttemptMetrics()
        self._counting = False
        self._scope = AgentScope()
        self._attempts = Attempts(api, lambda: self.now(), lambda: self._scope)
        self._slots = DeferredSemaphore(AT_ONCE)
        self._targets: tuple[WebhookTarget, ...] = ()
        #: Whether this agentk has received a configuration with targets.  Before that,
        #: kas must not delete the state of deliveries.
        self._had_targets = False
        self._steps = Interruptible()
        self._problem = ""
        api.sections.follow(SCOPE, AgentScope, self._limit)
        api.sections.follow("webhooks", WebhooksSection, self._configure)
        api.leadership.lead(self._lead)

    async def start(self) -> None:
        """Register metrics; the deliveries start when this agentk leads."""
        self._api.metrics.register(self._metrics)
        self._counting = True

    async def stop(self) -> None:
        """Unregister metrics; the deliveries end with the leadership."""
        if self._counting:
            self._counting = False
            self._api.metrics.unregister(self._metrics)

    def _limit(self, scope: AgentScope) -> None:
        self._scope = scope

    def _configure(self, section: WebhooksSection) -> None:
        if section.targets != self._targets:
            self._targets = section.targets
            self._had_targets = True
            self._steps.interrupt()

    async def _lead(self) -> None:
        backoff = Backoff(self._api.random, RETRY_FIRST, RETRY_MOST)
        self._problem = ""
        running: set[Deferred[None]] = set()
        try:
            while True:
                self._steps.begin()
                if not self._had_targets:
                    # The configuration interrupts the wait.
                    await self._steps.run(Deferred())
                    continue
                since = self._api.clock.seconds()
                try:
                    await self._steps.run(self._follow(self._targets, running))
                except CallError as error:
                    self._complain(error)
                if self._steps.is_interrupted:
                    continue
                if self._api.clock.seconds() - since > RETRY_MOST:
                    backoff.reset()
                await self._steps.run(deferLater(self._api.clock, backoff.pause()))
        finally:
            for one in tuple(running):
                one.cancel()

    async def _follow(
        self,
        targets: tuple[WebhookTarget, ...],
        running: set[Deferred[None]],
    ) -> None:
        """Post each delivery from kas until the stream ends."""
        by_name = {one.name: one for one in targets}
        request = wire.GetDeliveriesRequest(targets=[_message(one) for one in targets])
        client = self._api.calls.client(_WEBHOOKS)
        async with aclosing(client.stream("GetDeliveries", request)) as deliveries:
            async for delivery in deliveries:
                self._problem = ""
                target = by_name.get(delivery.target)
                if target is None or not self._api.leadership.leads:
                    continue
                self._start(target, delivery, running)

    def _start(
        self,
        target: WebhookTarget,
        delivery: wire.Delivery,
        running: set[Deferred[None]],
    ) -> None:
        """Post a delivery without waiting for its end."""
        delivering = Deferred.fromCoroutine(self._deliver(target, delivery))
        running.add(delivering)
        delivering.addErrback(self._failed)
        delivering.addBoth(lambda _: running.discard(delivering))

    async def _deliver(self, target: WebhookTarget, delivery: wire.Delivery) -> None:
        await self._slots.acquire()
        try:
            report = await self._attempts.deliver(target, delivery)
        finally:
            self._slots.release()
        self._metrics.count(report.status)
        self._log.info(
            "attempt to notify {target} of {commit} ({ref}): {result}",
            commit=delivery.after,
            ref=delivery.full_ref,
            target=target.name,
            result=report.error or f"status {report.status}",
        )
        client = self._api.calls.client(_WEBHOOKS)
        backoff = Backoff(self._api.random, RETRY_FIRST, RETRY_MOST)
        for left in reversed(range(REPORTS)):
            try:
                await client.call("ReportAttempt", report, timeout=REPORT_SECONDS)
                return
            except CallError as error:
                if error.status is Status.FAILED_PRECONDITION or not left:
                    self._log.info(
                        "kas did not accept the result of the webhook {target}, and "
                        "repeats it: {reason}",
                        target=target.name,
                        reason=error.message,
                    )
                    return
            await deferLater(self._api.clock, backoff.pause())

    def _complain(self, error: CallError) -> None:
        """Log why kas sends no deliveries, once."""
        if error.message == self._problem or not self._targets:
            return
        self._problem = error.message
        advice = ""
        if error.status in _NOTHING:
            advice = "; enable the module webhooks in kas"
        self._log.warn(
            "kas does not send webhooks: {reason}{advice}; retrying",
            reason=error.message,
            advice=advice,
        )

    def _failed(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("posting a webhook failed", failure)


def _message(target: WebhookTarget) -> wire.Target:
    return wire.Target(
        name=target.name,
        repository=target.repository,
        repository_url=target.repository_url,
        refs=target.refs,
        address=target.address,
        fingerprint=target.fingerprint,
    )
