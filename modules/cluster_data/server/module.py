"""The server half: stores the rows of all clusters, and answers queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import attrs
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.cluster_data.server.cache_path import NAME, CachePath
from modules.cluster_data.server.cached_watches import CachedWatches
from modules.cluster_data.server.channels import CHANNELS, RowsChannel
from modules.cluster_data.server.fleet import FLEET, FleetQueries
from modules.cluster_data.server.known_components import ComponentTable
from modules.cluster_data.server.live_queries import LiveQueries
from modules.cluster_data.server.reader import LATE, FleetReader
from modules.cluster_data.server.receiver import RowReceiver
from modules.cluster_data.server.rest import PREFIX, RestApi
from modules.cluster_data.server.rights import ReaderRights
from modules.cluster_data.server.rights_notices import RightsNotices
from modules.cluster_data.server.row_feed import RowFeed
from modules.cluster_data.server.sources.fleet_rows import FleetRows
from modules.cluster_data.server.sources.own_rows import OwnRows
from modules.cluster_data.server.sources.peer_changes import PeerChanges
from modules.cluster_data.server.sources.peer_rows import (
    PEER_ROWS,
    PeerRows,
    RowsForPeers,
)
from modules.cluster_data.server.store.row_store import Publication, RowStore
from modules.cluster_data.server.usage import FLEET_USAGE, FleetUsage
from modules.cluster_data.server.work_budget import WorkBudget
from modules.cluster_data.wire import cluster_data_pb2
from tunnel.api import (
    AgentPathsStarted,
    CableStarted,
    ClusterRowsStarted,
    CredentialRevoked,
    IAgentPaths,
    ICable,
    ICachedWatches,
    IClusterRows,
    IKnownComponents,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
    KnownComponentsStarted,
)
from tunnel.config import Duration, field
from tunnel.errors import CallError
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.repeated import Repeated

__all__ = ["ClusterDataServer", "ClusterDataSettings"]

_CLUSTER_DATA = cluster_data_pb2.DESCRIPTOR.services_by_name["ClusterData"]

#: Name of the file in the module's folder.
FILE = "rows.sqlite"

#: Seconds between two searches for clusters that have been away for too long, or whose
#: agents publish to another kas now.
SWEEP = 300.0


@attrs.frozen(kw_only=True)
class ClusterDataSettings:
    """Section ``modules.cluster_data`` of kas' configuration."""

    retention: Duration = field(
        default=Duration(30 * 86400.0),
        doc="how long the last known rows of a cluster that is away are kept",
    )


@provider(IServerModuleFactory)
@implementer(IServerModule)
class ClusterDataServer:
    """The server half of the module ``cluster_data``."""

    _log = Logger()
    configuration = ClusterDataSettings

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._api = api
        settings: ClusterDataSettings = api.configuration
        self._retention = settings.retention
        self._store = RowStore(
            api.stores.folder() / FILE, api.reactor, time.time, api.fail
        )
        self._rights = rights = ReaderRights(api, api.clock)
        changes = PeerChanges(api.peers, api.clock, rights.changed)
        self._queries = LiveQueries(api.clock, changes.follow)
        budget = WorkBudget(api.clock)
        own = OwnRows(self._store, api.clock, time.time, budget.charge)
        self._feed = RowFeed(own)
        api.capabilities.provide(IClusterRows, self._feed)
        self._notices = RightsNotices(api.clock, self._rights_changed)
        self._receiver = RowReceiver(
            self._store,
            self._touch,
            self._followed,
            self._feed,
            self._notices.received,
        )
        api.events.subscribe(CredentialRevoked, self._revoked)
        self._fleet = FleetRows(own, self._others)
        self._reader = FleetReader(self._fleet, rights, time.time, budget)
        for_peers = RowsForPeers(
            own, self._queries.changes, time.time, budget.admit_peer
        )
        api.peers.handle(PEER_ROWS, for_peers)
        self._path = CachePath(api)
        self._watches = CachedWatches(api)
        api.capabilities.provide(ICachedWatches, self._watches)
        self._metrics = _Metrics(self._receiver, self._path, self._watches, budget)
        self._counting = False
        self._sweeps = Repeated(api.clock, "removing old rows", self._sweep)
        api.calls.handle(_CLUSTER_DATA, self._receiver)
        components = ComponentTable()
        api.capabilities.provide(IKnownComponents, components)
        api.calls.handle_external(FLEET, FleetQueries(self._reader, components))
        api.calls.handle_external(FLEET_USAGE, FleetUsage(api, self._reader))
        self._channels = [
            RowsChannel(name, self._reader, self._queries, ask, budget)
            for name, ask in CHANNELS.items()
        ]
        self._withdraw: list[Callable[[], object]] = []
        api.events.subscribe(CableStarted, lambda _: self._serve())
        self._withdraw_path: Callable[[], object] = lambda: None
        api.events.subscribe(AgentPathsStarted, lambda _: self._serve_path())
        api.web.mount(PREFIX, RestApi(api, self._reader, components).app.resource())

    async def start(self) -> None:
        """Open the store."""
        await self._store.start()
        self._api.metrics.register(self._metrics)
        self._counting = True
        self._sweeps.start(SWEEP, now=True)
        self._serve()
        self._serve_path()
        self._api.events.publish(KnownComponentsStarted())
        self._api.events.publish(ClusterRowsStarted())

    async def stop(self) -> None:
        """Close the store."""
        self._withdraw_path()
        self._withdraw_path = lambda: None
        for_each(self._withdraw, lambda one: one(), "withdrawing a channel")
        self._withdraw = []
        self._queries.end()
        self._notices.stop()
        self._sweeps.stop()
        if self._counting:
            self._counting = False
            self._api.metrics.unregister(self._metrics)
        await self._store.stop()

    def _serve_path(self) -> None:
        """Serve the path of each agent if the module ``kubernetes_api`` runs."""
        paths = self._api.capabilities.get(IAgentPaths)
        if paths is not None:
            self._withdraw_path()
            self._withdraw_path = paths.serve(NAME, self._path)

    def _serve(self) -> None:
        """Serve the channels if the module ``action_cable`` runs."""
        cable = self._api.capabilities.get(ICable)
        if cable is not None:
            self._withdraw = [one.serve(cable) for one in self._channels]

    def _followed(self, publication: Publication) -> frozenset[str]:
        queries = self._queries.views(publication.agent_id)
        return queries | self._feed.views

    def _touch(self, publication: Publication) -> None:
        self._queries.touch(publication.agent_id)

    def _rights_changed(self, agent_id: str) -> None:
        self._rights.changed(agent_id)
        self._queries.touch(agent_id, rights=True)

    def _others(self) -> list[PeerRows]:
        """Return the stores of the other kas; the workers of one kas share one."""
        peers = self._api.peers
        return [
            PeerRows(peers, one, time.time)
            for one in peers.others()
            if not one.is_worker
        ]

    def _revoked(self, event: CredentialRevoked) -> None:
        self._rights.forget(event.credential_id)

    async def _sweep(self) -> None:
        try:
            await self._store.forget(time.time() - self._retention)
            await self._fleet.forget_moved(self._store.forget_moved, LATE)
        except CallError as error:
            self._log.warn("old live data stays: {reason}", reason=error.message)


class _Metrics(Collector):
    def __init__(
        self,
        receiver: RowReceiver,
        path: CachePath,
        watches: CachedWatches,
        budget: WorkBudget,
    ) -> None:
        self._receiver = receiver
        self._budget = budget
        self._path = path
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        messages = CounterMetricFamily(
            "kas_cluster_data_messages",
            "Messages with rows of clusters, by type",
            labels=("type",),
        )
        for kind, count in sorted(self._receiver.messages.items()):
            messages.add_metric((kind,), count)
        yield messages
        yield CounterMetricFamily(
            "kas_cluster_data_repeated_views",
            "Views that were sent again because the rows of kas differed",
            value=self._receiver.repeated,
        )
        yield CounterMetricFamily(
            "kas_cluster_data_work_refused",
            "Queries and snapshots that were refused because of the user's budget",
            value=self._budget.refused,
        )
        yield GaugeMetricFamily(
            "kas_cluster_data_clusters",
            "Clusters whose agents publish rows to this kas",
            value=len(self._receiver.publishing),
        )
        responses = CounterMetricFamily(
            "kas_cluster_data_cache_responses",
            "Responses to requests below /agents/<agent>/cache, by HTTP status",
            labels=("status",),
        )
        for status, count in sorted(self._path.requests.items()):
            responses.add_metric((str(status),), count)
        yield responses
        watches = CounterMetricFamily(
            "kas_cluster_data_cached_watches",
            "Watches of GitLab's pages that agentk's cache answered or refused",
            labels=("outcome",),
        )
        for outcome, count in sorted(self._watches.outcomes.items()):
            watches.add_metric((outcome,), count)
        yield watches
