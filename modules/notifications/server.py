"""kas' half: when any kas is notified of a push, every kas publishes it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.notifications import rpc_pb2
from modules.notifications.broadcast_settings import BroadcastSettings
from modules.notifications.broadcasts import BroadcastMetrics, Broadcasts
from modules.notifications.webhook import Webhook
from tunnel.api import (
    ClusterRowsStarted,
    GitPushed,
    IClusterRows,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
    StoreEventType,
)
from tunnel.config import ExistingFile, field
from tunnel.details import bad_request
from tunnel.errors import CallError, Status
from tunnel.toolkit.secret_file import read_secret

__all__ = ["NOTIFICATIONS", "NotificationsServer", "NotificationsSettings"]

NOTIFICATIONS = rpc_pb2.DESCRIPTOR.services_by_name["Notifications"]

#: Seconds during which the store keeps a push, so that every kas receives it.
REMEMBERED = 60.0

#: Maximum characters of the path of a project or of the name of a repository.
MAX_PATH = 1024

#: Maximum number of names whose first push is logged, because a GitLab may have many
#: projects.
MAX_NAMES = 1000

#: Seconds before another attempt to watch the store after a failure.
WATCH_AGAIN = 5.0


def _is_secret(instance: object, attribute: object, value: Any) -> None:
    if value is not None:
        read_secret(value)


@attrs.frozen(kw_only=True)
class NotificationsSettings:
    """``modules.notifications``."""

    webhook_secret_file: ExistingFile | None = field(
        default=None,
        doc="secret of the Git servers that call /git/pushed/<name>; enables that page",
        validator=_is_secret,
    )
    action_cable: BroadcastSettings | None = field(
        default=None,
        doc="broadcasts of live data to a Rails server; enabled if present",
    )


@provider(IServerModuleFactory)
@implementer(IServerModule)
class NotificationsServer:
    """
    Server of `Notifications` and of a webhook.

    Publishes ``git.pushed``.  Each push passes through the store that all kas share,
    because the agents of the repository may be connected to another kas.
    """

    _log = Logger()
    configuration = NotificationsSettings

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._api = api
        self._store = api.stores.open("pushes")
        self._watching: Deferred[Any] | None = None
        self._names: set[str] = set()
        api.calls.handle_external(NOTIFICATIONS, self)
        secret_file = api.configuration.webhook_secret_file
        if secret_file is not None:
            webhook = Webhook(secret_file, self.pushed)
            api.web.mount("/git/pushed", webhook.app.resource())
        self._broadcasts: Broadcasts | None = None
        self._metrics: BroadcastMetrics | None = None
        if api.configuration.action_cable is not None:
            self._broadcasts = broadcasts = Broadcasts(
                api.configuration.action_cable,
                lambda: api.capabilities.get(IClusterRows),
                api.clock,
                lambda: os.urandom(8).hex(),
            )
            api.events.subscribe(ClusterRowsStarted, lambda _: broadcasts.follow())

    async def start(self) -> None:
        """Receive the pushes that other kas store, and broadcast live data."""
        if self._broadcasts is not None:
            self._start_broadcasts(self._broadcasts)
        self._watching = watching = Deferred.fromCoroutine(self._watch())
        watching.addErrback(self._failed)

    def _start_broadcasts(self, broadcasts: Broadcasts) -> None:
        redis = self._api.network.redis_publisher(
            self._api.configuration.action_cable.redis,
            purpose="broadcasts to Rails",
            while_down="browsers get the latest rows afterwards",
            available=broadcasts.available,
        )
        self._metrics = BroadcastMetrics(broadcasts)
        self._api.metrics.register(self._metrics)
        broadcasts.start(redis)

    async def stop(self) -> None:
        """Stop receiving pushes, and broadcasting."""
        if self._watching is not None:
            self._watching.cancel()
        if self._broadcasts is not None:
            self._broadcasts.stop()
        if self._metrics is not None:
            self._api.metrics.unregister(self._metrics)
            self._metrics = None

    async def git_push_event(
        self, request: rpc_pb2.GitPushEventRequest, call: Any
    ) -> rpc_pb2.GitPushEventResponse:
        """Publish a push to a project of GitLab."""
        project = request.event.project
        if project.id <= 0:
            why = "must be above 0"
            details = [bad_request({"event.project.id": why})]
            raise CallError(Status.INVALID_ARGUMENT, f"event.project.id {why}", details)
        await self.pushed(project.full_path)
        return rpc_pb2.GitPushEventResponse()

    async def pushed(self, name: str) -> None:
        """
        Publish a push to the repository *name*, at this kas and at every other kas.

        :raises CallError: INVALID_ARGUMENT if no repository has this name; UNAVAILABLE
            if kas cannot reach the store.
        """
        if not 0 < len(name) <= MAX_PATH or not name.isprintable():
            raise CallError(Status.INVALID_ARGUMENT, "not a valid path of a project")
        self._log_first(name)
        key = hashlib.sha256(name.encode()).hexdigest()
        try:
            await self._store.set(key, name.encode(), expires_after=REMEMBERED)
        except CallError:
            # Publish at once, because agents that are connected to this kas need not
            # wait for the store.
            self._api.events.publish(GitPushed(name))
            raise CallError(
                Status.UNAVAILABLE, "kas cannot notify the other kas of the push now"
            ) from None

    def _log_first(self, name: str) -> None:
        """
        Log the first push for each name that a Git server uses, because a wrong name
        has no other effect.
        """
        if name in self._names or len(self._names) >= MAX_NAMES:
            return
        self._names.add(name)
        self._log.info(
            "first notification of a push to {name}: checking the repositories with "
            "that name, if there are any",
            name=repr(name),
        )

    async def _watch(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._store.watch()) as watch:
                    async for event in watch:
                        if event.type is StoreEventType.RESET:
                            await self._publish_all()
                        elif event.type is StoreEventType.SET:
                            await self._publish(event.key)
            except CallError as error:
                self._log.warn(
                    "this kas does not receive notifications of pushes from other "
                    "kas; retrying: {reason}",
                    reason=error.message,
                )
            await deferLater(self._api.clock, WATCH_AGAIN)

    async def _publish_all(self) -> None:
        async for page in self._store.keys():
            for key in page:
                await self._publish(key)

    async def _publish(self, key: str) -> None:
        found = await self._store.get(key)
        if found is not None:
            self._api.events.publish(GitPushed(found.value.decode("utf-8", "replace")))

    def _failed(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("listening for pushes failed", failure)
            self._api.fail(failure.value)
