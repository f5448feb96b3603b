"""The agent half: the cache, and its publication, while this agentk leads."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import attrs
from twisted.internet.defer import CancelledError, Deferred
from zope.interface import implementer, provider

from modules.cluster_data.agent.budget import budget_of
from modules.cluster_data.agent.cache import ClusterCache
from modules.cluster_data.agent.cluster_uid import ClusterUid
from modules.cluster_data.agent.metrics import CacheMetrics
from modules.cluster_data.agent.objects.reads import ObjectReads
from modules.cluster_data.agent.publisher import TablePublisher
from modules.cluster_data.agent.reviews import Reviews
from modules.cluster_data.agent.rights_watch import RightsWatch
from modules.cluster_data.agent.usage import ResourceUsage
from modules.cluster_data.agent.view_registry import ViewRegistry
from modules.cluster_data.wire import cluster_data_pb2, objects_pb2, usage_pb2
from modules.cluster_data.wire.view_names import KINDS, SUMMARY
from tunnel.api import (
    SCOPE,
    AgentScope,
    ClusterView,
    ClusterViewsStarted,
    ConfigurationRead,
    IAgentModule,
    IAgentModuleApi,
    IAgentModuleFactory,
    IClusterViews,
)
from tunnel.config import Size, field
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.until import until

__all__ = ["ClusterDataAgent", "ClusterDataOptions"]

_SERVICES = cluster_data_pb2.DESCRIPTOR.services_by_name
_USAGE = usage_pb2.DESCRIPTOR.services_by_name["ClusterUsage"]
_OBJECTS = objects_pb2.DESCRIPTOR.services_by_name["ClusterObjects"]

#: Maximum number of seconds that a new leader waits for the scope in Git before it
#: reads the whole cluster.
SCOPE_SECONDS = 10.0

#: Minimum number of seconds between two messages about the views that the cache
#: computes itself.
PAUSES = {SUMMARY: 0.25, KINDS: 1.0}


@attrs.frozen(kw_only=True)
class ClusterDataOptions:
    """Section ``modules.cluster_data`` of agentk's configuration."""

    max_memory: Size | None = field(
        default=None,
        doc="memory for the cache; by default 128MiB, or a quarter of the container's "
        "memory limit if that is less",
    )


@provider(IAgentModuleFactory)
@implementer(IAgentModule)
class ClusterDataAgent:
    """The agent half of the module ``cluster_data``."""

    configuration = ClusterDataOptions

    def __init__(self, api: IAgentModuleApi) -> None:
        self.name = api.name
        self._api = api
        options: ClusterDataOptions = api.configuration
        self._budget = budget_of(options.max_memory)
        api.calls.handle(_USAGE, ResourceUsage(api))
        self._reads = reads = ObjectReads(
            api.kubernetes, lambda: self._metrics.cache, api.clock, time.time
        )
        api.calls.handle_as_leader(_OBJECTS, reads)
        self._metrics = CacheMetrics(reads.metrics)
        self._counting = False
        self._cluster_uid = ClusterUid(api.kubernetes)
        self._epoch = b""
        reviews = Reviews(api, self._cluster_uid, lambda: self._epoch)
        api.calls.handle(_SERVICES["ClusterReviews"], reviews)
        self._views = ViewRegistry(self._begin_again)
        self._running: Deferred[None] | None = None
        self._is_outdated = False
        api.capabilities.provide(IClusterViews, self._views)
        self._scope = AgentScope()
        self._knows_scope = False
        api.events.subscribe(ConfigurationRead, self._configured)
        api.sections.follow(SCOPE, AgentScope, self._limit)
        api.leadership.lead(self._lead)

    async def start(self) -> None:
        """Register metrics; the cache starts when this agentk leads."""
        self._api.metrics.register(self._metrics)
        self._counting = True
        self._api.events.publish(ClusterViewsStarted())

    async def stop(self) -> None:
        """Unregister metrics; the cache ends with the leadership."""
        if self._counting:
            self._counting = False
            self._api.metrics.unregister(self._metrics)

    async def _lead(self) -> None:
        await until(lambda: self._knows_scope, self._api.clock, SCOPE_SECONDS)
        while True:
            self._is_outdated = False
            self._running = Deferred.fromCoroutine(self._run(self._views.views))
            try:
                await self._running
            except CancelledError:
                if not self._is_outdated:
                    raise
            finally:
                self._running = None

    def _configured(self, event: ConfigurationRead) -> None:
        self._knows_scope = True

    def _limit(self, scope: AgentScope) -> None:
        if scope != self._scope:
            self._scope = scope
            self._begin_again()

    def _begin_again(self) -> None:
        """Begin with another cache, because the views or the scope have changed."""
        if self._running is not None:
            self._is_outdated = True
            self._running.cancel()

    async def _run(self, views: Sequence[ClusterView]) -> None:
        uid = await self._cluster_uid.read()

        def changed(view: str) -> None:
            publisher.changed(view)

        def rights_changed() -> None:
            self._reads.rights_changed()
            publisher.rights_changed()

        cache = ClusterCache(
            self._api.kubernetes,
            views,
            self._budget,
            self._api.clock,
            self._api.random,
            time.time,
            changed,
            self._scope,
        )
        epoch = os.urandom(16)
        publisher = TablePublisher(
            self._api.calls.client(_SERVICES["ClusterData"]),
            cache.tables,
            cache.is_complete,
            epoch,
            uid,
            PAUSES | {one.name: one.pause for one in views},
            self._api.clock,
            self._api.random,
        )
        rights = RightsWatch(
            self._api.kubernetes,
            self._api.clock,
            self._scope,
            rights_changed,
        )
        self._metrics.cache, self._epoch = cache, epoch
        try:
            await in_parallel([cache.run, publisher.run, rights.run])
        finally:
            self._metrics.cache, self._epoch = None, b""
