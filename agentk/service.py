"""The service tree of agentk; the only place that wires its parts together."""

from __future__ import annotations

import itertools
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from platform import machine
from socket import gethostname
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from agentk.config import (
    AdmissionSettings,
    AgentkConfiguration,
    AgentkOptions,
    ObservabilitySection,
    PolicySettings,
    TokenSource,
)
from agentk.dialer import Dialer
from agentk.extra_tunnels import ExtraTunnels
from agentk.health import make_site
from agentk.kubernetes.cluster import CONNECT_TIMEOUT, ClusterAccess
from agentk.kubernetes.kubeconfig import IN_CLUSTER
from agentk.kubernetes.reachability import ClusterReachability
from agentk.kubernetes.version import ClusterVersion
from agentk.leader_election import LeaderElection
from agentk.metrics import LeaderCollector, ReachCollector, TunnelCollector
from agentk.modules import AgentContext
from agentk.state_reports import StateReports, cluster_report, modules_report
from tunnel import __version__
from tunnel.api import (
    Draining,
    IAgentModule,
    TunnelConnected,
)
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import ModuleHost, Prepared
from tunnel.hosting.sections import Sections
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients, OwnNamespace
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program import sdnotify
from tunnel.program.listening import Listening
from tunnel.program.module_ports import ModulePorts
from tunnel.program.parts import Phase, Steps
from tunnel.program.process_metrics import register_process_metrics
from tunnel.program.runtime import Runtime
from tunnel.program.service import ProgramService
from tunnel.program.telemetry import telemetry_parts
from tunnel.program.tuning import settle
from tunnel.rpc.dispatch import Dispatcher
from tunnel.toolkit.files import reread_files
from tunnel.transport import eager
from tunnel.transport.address import KasAddress, client_endpoint
from tunnel.transport.tls import client_context

if TYPE_CHECKING:
    from agentk.policy.admission.webhook import AdmissionWebhook
    from agentk.policy.guard import PolicyGuard

#: Maximum number of seconds for running requests when agentk stops; Kubernetes gives a
#: pod 30 seconds.
STOP_GRACE = 20.0

#: Namespace of the leader's Lease if none is configured: kubectl's default.
DEFAULT_NAMESPACE = "default"

#: Go's names of machine types, which GitLab uses.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

#: Prefix of environment variables about the installation of agentk.
_TELEMETRY = "GITLAB_AGENT_TELEMETRY_"


class AgentkService(ProgramService):
    """One process of agentk."""

    _log = Logger()

    def __init__(
        self,
        options: AgentkOptions,
        configuration: AgentkConfiguration,
        token: TokenSource,
        cluster: ClusterAccess,
        modules: list[Prepared],
        reactor: Any,
        *,
        environ: Mapping[str, str] = os.environ,
        remarks: Sequence[str] = (),
    ) -> None:
        super().__init__("agentk", reactor, remarks)
        observability = configuration.observability
        # kas decides which requests are traced.
        self._runtime = runtime = Runtime(reactor=reactor, environ=environ).traced(
            observability.tracing, "agentk", 0.0
        )
        self._options = options
        self._token = token
        self._contexts: dict[KasAddress, ssl.SSLContext] = {}
        self._addresses = itertools.cycle(options.kas)
        self._listening = Listening(reactor, program="agentk")
        self.cluster = cluster
        self._version = ClusterVersion(cluster, reactor)
        self.metrics = runtime.metrics
        register_process_metrics(
            self.metrics, "agentk", self._listening, lambda: self.dropped_lines
        )
        self._profile = observability.profile
        self.dispatcher = Dispatcher(reactor, from_kas=True, tracer=runtime.tracer)
        self._upstream = UpstreamPool(
            cluster.endpoint,
            reactor,
            limits=configuration.kubernetes.upstream_limits(),
            write=eager.write,
        )
        self.dialer = Dialer(
            endpoint=self._endpoint,
            hello=self._hello,
            dispatcher=self.dispatcher,
            runtime=runtime,
            where=f"kas at {options.kas[0]}",
            addresses=len(options.kas),
            credential_from=token.where,
        )
        self.extra_tunnels = ExtraTunnels(self.dialer, runtime)
        self.metrics.register(TunnelCollector(self.dialer, self.extra_tunnels))
        self.reach = ClusterReachability(
            self._version,
            cluster.target.url,
            cluster.target.advice,
            lambda: self.cluster_reports.report(),
            reactor,
        )
        self.cluster_reports = StateReports(
            "Cluster",
            lambda: self.reach.problem,
            cluster_report,
            "",
            self.dialer.open_stream,
            lambda: self.dialer.services,
            reactor,
        )
        self.metrics.register(ReachCollector(self.reach))
        self.sections = Sections()
        self.sections.follow(
            "agentk", "observability", ObservabilitySection, self._observe
        )
        in_cluster = cluster.target.origin == IN_CLUSTER
        has_policy = configuration.policy.file is not None
        # agentk may not own the namespace of a kubeconfig's context.
        is_own = bool(options.namespace or (in_cluster and self._namespace))
        self.own_namespace = OwnNamespace(
            self._namespace or DEFAULT_NAMESPACE,
            is_own,
            not configuration.kubernetes.allow_own_namespace or has_policy,
            has_policy and is_own,
        )
        reach = partial(HostnameEndpoint, reactor, timeout=CONNECT_TIMEOUT)
        # The clients of agentk itself, which nothing from kas reaches.
        own_clients = KubernetesClients(
            cluster,
            self._upstream,
            reactor,
            runtime.random,
            own_namespace=self.own_namespace,
            reach=reach,
        )
        #: The admission webhook; None without one.
        self.admission: AdmissionWebhook | None = None
        self.policy = (
            self._make_policy(configuration.policy, own_clients) if has_policy else None
        )
        kubernetes = KubernetesClients(
            cluster,
            self._upstream,
            reactor,
            runtime.random,
            own_namespace=self.own_namespace,
            reach=reach,
            guard=self.policy,
        )
        self._election = LeaderElection(
            own_clients.as_agentk(),
            self.own_namespace.name,
            options.pod_name or f"{gethostname()}-{runtime.instance_id.hex()}",
            runtime,
        )
        self.metrics.register(LeaderCollector(self._election))
        context = AgentContext(
            reactor=reactor,
            random=runtime.random,
            dispatcher=self.dispatcher,
            bus=runtime.bus,
            metrics=self.metrics,
            kubernetes=kubernetes,
            dialer=self.dialer,
            sections=self.sections,
            election=self._election,
            ports=ModulePorts(self._listening),
            tracer=runtime.tracer,
        )
        self.modules = ModuleHost(
            modules,
            interface=IAgentModule,
            make_api=context.make_api,
            clock=reactor,
            jitter=runtime.random,
        )
        self.module_reports: StateReports[dict[str, str]] = StateReports(
            "Modules",
            self._problems,
            modules_report,
            {},
            self.dialer.open_stream,
            lambda: self.dialer.services,
            reactor,
        )
        self.modules.on_changed = self.module_reports.report
        self.compose(
            *telemetry_parts(observability.sentry, "agentk", runtime),
            Steps("TLS to kas", start=self._read_contexts),
            self._listening,
            Steps("health and metrics", start=self._listen),
            Steps("the cluster", start=self.cluster.start, stop=self.cluster.stop),
            Steps("connections to the cluster", stop=self._upstream.close),
            *self._policy_steps(),
            Steps(
                "modules",
                start=self.modules.start,
                drain={Phase.MODULES: self.modules.stop},
                stop=self.modules.stop,
            ),
            Steps(
                "checks of the cluster", start=self.reach.start, stop=self.reach.stop
            ),
            Steps(
                "tunnels",
                start=self._connect,
                drain={
                    Phase.READINESS: self.extra_tunnels.stop,
                    Phase.REQUESTS: self._disconnect,
                },
            ),
            sdnotify.Watchdog(reactor),
        )

    def _make_policy(
        self, settings: PolicySettings, clients: KubernetesClients
    ) -> PolicyGuard:
        """Return the policy of the cluster's owner."""
        # Imported here, because it takes 1 MiB of memory.
        from agentk.policy.floor import Floor
        from agentk.policy.guard import PolicyCollector, PolicyGuard
        from agentk.policy.state import ClusterState
        from agentk.policy.via import Via

        own = self.own_namespace
        guard = PolicyGuard(
            settings,
            ClusterState(clients.as_agentk(), own.name),
            Floor(own.name, own.is_closed, records=own.records),
            self._upstream,
            self.cluster.path_prefix.rstrip("/"),
            self._reactor,
            self._runtime.now,
            lambda: self.module_reports.report(),
            None if settings.admission is None else Via(own.name),
        )
        self.metrics.register(PolicyCollector(guard))
        if settings.admission is not None:
            self.admission = self._make_admission(settings.admission, guard, clients)
        return guard

    def _make_admission(
        self,
        settings: AdmissionSettings,
        guard: PolicyGuard,
        clients: KubernetesClients,
    ) -> AdmissionWebhook:
        # Imported here, because few clusters have the webhook.
        from agentk.policy.admission.registration import Registration
        from agentk.policy.admission.webhook import AdmissionWebhook

        return AdmissionWebhook(
            settings,
            guard,
            Registration(clients.as_agentk(), self.own_namespace.name, settings),
            self._listening,
            self._reactor,
            self._runtime.now,
            lambda: self.module_reports.report(),
        )

    def _policy_steps(self) -> Iterator[Steps]:
        if self.policy is not None:
            yield Steps("the policy", start=self.policy.start, stop=self.policy.stop)
        if self.admission is not None:
            yield Steps(
                "the admission webhook",
                start=self.admission.start,
                stop=self.admission.stop,
            )

    def _problems(self) -> dict[str, str]:
        """Return the problems that kas shows, by module."""
        problems = dict(self.modules.problems)
        if self.policy is not None and self.policy.problem:
            problems["policy"] = self.policy.problem
        if self.admission is not None and self.admission.problem:
            problems["admission"] = self.admission.problem
        return problems

    def _read_contexts(self) -> None:
        self._contexts = self._make_contexts()
        for insecure in (one for one in self._options.kas if not one.secure):
            self._log.warn(
                "{address} is not encrypted: the token and all traffic can be read "
                "in transit; use tls:// or wss://",
                address=str(insecure),
            )

    async def _listen(self) -> None:
        await self._listening.listen(
            self._options.observability,
            make_site(
                self.dialer, self.metrics, self._profile, self._reactor, self._unready
            ),
            what="health and metrics",
            setting="--observability-listen-address",
            alpn=("http/1.1",),
            minimum=ssl.TLSVersion.TLSv1_2,
        )

    def _unready(self) -> str:
        """Return why agentk answers no requests, apart from the tunnel."""
        if self.policy is None or self.policy.is_enforced:
            return ""
        return f"the policy of the cluster's owner: {self.policy.problem}"

    def _connect(self) -> None:
        self._runtime.bus.subscribe("agentk", TunnelConnected, self._connected)
        self.dialer.start()
        self.extra_tunnels.start()
        settle()

    def _observe(self, section: ObservabilitySection) -> None:
        self.set_log_level(section.logging.level)
        self._log.debug("logging events of level debug, as configured in Git")

    def reload(self) -> None:
        self.reopen_log()
        self._log.info(
            "SIGHUP: read certificates and tokens again; changes of options and of "
            "the configuration file need a restart"
        )
        reread_files()
        if self.admission is not None:
            looking = Deferred.fromCoroutine(self.admission.look())
            looking.addErrback(
                lambda failure: self._log.failure(
                    "renewing the webhook failed", failure
                )
            )
        try:
            self._contexts = self._make_contexts()
        except ConfigurationError as error:
            self._log.error(
                "--ca-cert-file: {problem}; the previous content stays in use",
                problem=str(error),
            )

    def _connected(self, event: TunnelConnected) -> None:
        # As for the readiness probe, ready means that the tunnel is established.
        sdnotify.notify("READY=1")
        self._election.agent_is(event.agent_id)
        self.cluster_reports.connected()
        self.module_reports.connected()

    def _make_contexts(self) -> dict[KasAddress, ssl.SSLContext]:
        addresses = self._options.kas
        return {one: self._make_context(one) for one in addresses if one.secure}

    def _make_context(
        self, address: KasAddress, *, any_name: bool = False
    ) -> ssl.SSLContext:
        options = self._options
        return client_context(
            ca_file=str(options.ca_cert_file) if options.ca_cert_file else None,
            insecure=options.kas_insecure_skip_tls_verify,
            any_name=any_name,
            alpn=address.alpn,
            # TLS of a WebSocket may end at a proxy that does not support 1.3.
            minimum_version=ssl.TLSVersion.TLSv1_2
            if address.is_websocket
            else ssl.TLSVersion.TLSv1_3,
        )

    def _endpoint(self) -> IStreamClientEndpoint:
        """Return the endpoint of the next address, in a cycle."""
        options = self._options
        address = next(self._addresses)
        self.dialer.where = f"kas at {address}"
        return client_endpoint(
            self._reactor,
            address,
            tls_context_source=lambda: self._contexts[address],
            server_name=options.kas_tls_server_name,
            environ=self._runtime.environ,
            headers=options.kas_header,
            clock=self._reactor,
            any_name_source=partial(self._make_context, address, any_name=True),
        )

    @property
    def _namespace(self) -> str:
        """
        Return agentk's Namespace; empty if agentk runs outside of a cluster and no
        Namespace is known.
        """
        return self._options.namespace or self.cluster.target.namespace

    def _hello(self) -> pb.Hello:
        said = self._runtime.environ
        return pb.Hello(
            credential=self._token.current(),
            instance_id=self._runtime.instance_id,
            agent=pb.AgentMeta(
                version=__version__,
                pod_namespace=self._namespace,
                pod_name=self._options.pod_name,
                kubernetes_version=self._version.known,
                architecture=_ARCHITECTURES.get(machine(), machine()),
                installation_method=said.get(f"{_TELEMETRY}INSTALLATION_METHOD", ""),
                helm_chart_version=said.get(f"{_TELEMETRY}HELM_CHART_VERSION", ""),
            ),
        )

    async def _disconnect(self) -> None:
        # The dialer first announces to kas that agentk accepts no new requests.
        # Modules stop after that, so that their clients do not reach this agentk again.
        stopping = Deferred.fromCoroutine(self.dialer.stop(STOP_GRACE))
        self._runtime.bus.publish(Draining())
        await self._election.stop()
        await stopping
