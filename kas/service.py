"""The service of kas: the only place that wires its parts together."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kas.agents.acceptor import AGENT_TIMING, REFUSALS, AgentAcceptor, ConnectionRate
from kas.agents.last_seen import LastSeen
from kas.agents.part import AgentsPart
from kas.agents.registry import Registry
from kas.agents.reports import AgentReports
from kas.api.listener import ExternalApi, operators_factory
from kas.api.own_services import HEALTH, SERVER_INFO, ApiHealth, ServerInfo
from kas.api.services import ExternalServices
from kas.config.loading import certificate_names
from kas.config.own_address import interface_addresses
from kas.config.schema import KasConfiguration
from kas.fleet.balance import Balance
from kas.fleet.fleet import Fleet
from kas.fleet.part import FleetPart
from kas.git.limits import GitLimits
from kas.git.metrics import GitCollector
from kas.git.repositories import Repositories
from kas.gitlab.access import GitLabForAgents
from kas.gitlab.agents import OfGitLab
from kas.gitlab.part import GitLabPart
from kas.gitlab.projects import AgentProjects
from kas.identity.authenticators import Authenticators
from kas.identity.file_authenticator import FileAuthenticator
from kas.modules import ServerContext
from kas.observability.audit import AuditLog
from kas.observability.fleet_metrics import FleetCollector
from kas.observability.part import ObservabilityPart
from kas.observability.redis_metrics import RedisCollector
from kas.observability.site import Health
from kas.oidc.sign_in import serve_sign_in
from kas.operations import Operations, describe
from kas.routing.router import Router
from kas.state.control import control_site
from kas.state.development_certificate import DevelopmentCertificate
from kas.state.directory import StateDirectory
from kas.state.process_socket import CALLS, CONTROL, ProcessSocket
from kas.state.running_record import RunningRecord
from kas.storage.backend import make_backend
from kas.web.listener import WebListener
from kas.workers.limits import SharedLimits
from kas.workers.supervised import SupervisedWorker
from kas.workers.worker import Worker
from tunnel.api import (
    CredentialRevoked,
    Draining,
    IServerModule,
)
from tunnel.config import CredentialCaching
from tunnel.hosting.modules import ModuleHost, Prepared
from tunnel.hosting.pages import Pages
from tunnel.hosting.stores import Stores
from tunnel.program import sdnotify
from tunnel.program.listening import Listening
from tunnel.program.logs import LoggingService
from tunnel.program.parts import Part, PartTree, Phase, Steps
from tunnel.program.process_metrics import register_process_metrics
from tunnel.program.runtime import Runtime
from tunnel.program.sentry import ErrorReports
from tunnel.program.startup import start_or_exit
from tunnel.program.telemetry import telemetry_parts
from tunnel.program.tracing import Tracer
from tunnel.program.tuning import settle
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Keepalive
from tunnel.session.resume import Keeper, ResumeLimits
from tunnel.toolkit.files import reread_files
from tunnel.toolkit.until import until
from tunnel.util.flusher import Flusher

if TYPE_CHECKING:
    from kas.redis import RedisClient
    from kas.web.draining import DrainingListener

#: A kas holds the streams of all agents, and is not counted in MiB as agentk is.
KAS_RESUME_LIMITS = ResumeLimits(kept=256 << 20, kept_per_owner=32 << 20)


class KasService(LoggingService, Service):
    """
    One process of kas.

    :param worker: settings of a worker; None: this process is the whole kas.
    """

    _log = Logger()

    def __init__(
        self,
        configuration: KasConfiguration,
        modules: list[Prepared],
        state: StateDirectory,
        reactor: Any,
        *,
        now: Callable[[], float] = time.time,
        environ: Mapping[str, str] = os.environ,
        remarks: Sequence[str] = (),
        worker: Worker | None = None,
    ) -> None:
        self.name = "kas"
        if worker is not None:
            configuration, environ = worker.configure(configuration, environ)
        self.configuration = configuration
        self._remarks = remarks
        self._runtime = runtime = _runtime(configuration, reactor, now, environ)
        self.metrics = runtime.metrics
        self.dispatcher = Dispatcher(reactor, tracer=runtime.tracer)
        self.registry = Registry()
        names = certificate_names(configuration, modules, environ)
        self._certificate = DevelopmentCertificate(state, runtime, names)
        sockets = {} if worker is None else worker.sockets
        self.listening = Listening(
            reactor,
            self._certificate.certificate,
            program="kas",
            now=now,
            handed=sockets,
        )
        self.fleet = Fleet(
            configuration,
            self.registry,
            runtime,
            interface_addresses,
            self._certificate.files,
            () if worker is None else worker.sibling_urls,
        )
        self._redis: dict[str, RedisClient] = {}
        siblings = self.fleet.siblings
        shares = siblings is not None and worker is not None and worker.shares_store
        changed = siblings.stored if siblings is not None and shares else None
        self._stores = Stores(
            lambda: make_backend(configuration, state, runtime, changed, self._redis),
            reactor,
        )
        self.identity = FileAuthenticator(
            state.file("identity.json"),
            reactor,
            now,
            elsewhere=configuration.gitlab is not None,
        )
        self.authenticators = Authenticators(reactor)
        self.authenticators.add(self.identity)
        self.authenticators.run(self.identity)
        self._gitlab = self._make_gitlab(modules)
        if configuration.oidc is not None:
            serve_sign_in(
                configuration.oidc,
                runtime,
                self.identity,
                self.authenticators,
                self._credentials_in_use,
            )
        self._limits: SharedLimits | None = None
        if worker is not None and siblings is not None:
            self._limits = siblings.workers = SharedLimits(
                len(worker.urls), siblings.used, self._stores
            )
            failed = self.authenticators.failed
            failed.tell = self._limits.happening("failed-checks", failed.count)
        self.last_seen = LastSeen(
            state,
            lambda: {one.agent.agent_id for one in self.registry},
            self.identity.agent if configuration.gitlab is None else OfGitLab,
            self.fleet.directory,
            reactor,
            now,
        )
        grace = configuration.agent.listen.resume_grace_period
        self.router = Router(
            self.registry,
            reactor,
            self.fleet.directory,
            peers=self.fleet.peers,
            keeper=Keeper(reactor, lambda: grace, KAS_RESUME_LIMITS),
            random=runtime.random,
            absences=self.last_seen,
            may_connect=self.identity.may_connect,
        )
        self.balance = Balance(
            self.registry, self.fleet.directory, reactor, runtime.random
        )
        self._audit = AuditLog(
            configuration.observability.audit, runtime.instance_id.hex(), now
        )
        self._make_listeners()
        self._repositories = _repositories(configuration, state, runtime)
        self._context = self._make_context()
        self.modules = ModuleHost(
            modules,
            interface=IServerModule,
            make_api=self._context.make_api,
            clock=reactor,
            jitter=runtime.random,
        )
        self.refusals: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))
        self._acceptor = self._make_acceptor(worker)
        self.health = Health(
            self.registry,
            self.router,
            lambda: self.modules.states,
            lambda: len(self.fleet.others()),
            self._about,
            self.refusals,
        )
        self._observability = ObservabilityPart(
            configuration.observability, self.health, self.listening, runtime
        )
        AgentReports(self.registry, runtime.bus, reactor).serve(self.dispatcher)
        access = GitLabForAgents(None, lambda agent: None, reactor)
        (access if self._gitlab is None else self._gitlab.access).serve(self.dispatcher)
        self._register_metrics()
        self._place = self._make_place(state, worker)
        self._tree = PartTree(self._parts(state, sockets))

    def _make_gitlab(self, modules: list[Prepared]) -> GitLabPart | None:
        settings = self.configuration.gitlab
        if settings is None:
            return None
        gitlab = GitLabPart(
            settings,
            self.configuration,
            _credential_caching(modules),
            self._runtime,
            self.registry.credential_id,
            self._stores,
            self.fleet.redis,
        )
        gitlab.serve(
            self.authenticators,
            lambda: {one.credential_id for one in self.registry.tunnels()},
            self._credentials_in_use,
        )
        return gitlab

    def _make_listeners(self) -> None:
        configuration, runtime = self.configuration, self._runtime
        self.external_services = ExternalServices(runtime.reactor, runtime.tracer)
        self._api_health = ApiHealth(lambda: self.external_services.names)
        self.external_services.handle("kas", HEALTH, self._api_health)
        self.external_services.handle("kas", SERVER_INFO, ServerInfo())
        self.external: ExternalApi | None = None
        if configuration.api is not None:
            self.external = ExternalApi(
                configuration.api.listen,
                self.external_services,
                self.listening,
                runtime.reactor,
                now=runtime.now,
                jitter=runtime.random,
            )
        self._pages = Pages()
        self.web: WebListener | None = None
        if configuration.web is not None:
            self.web = WebListener(
                configuration.web, self._pages, self.listening, runtime.reactor
            )

    def _make_context(self) -> ServerContext:
        gitlab, reactor = self._gitlab, self._runtime.reactor
        settings = self.configuration.gitlab
        usage = None if gitlab is None else gitlab.usage
        return ServerContext(
            reactor=reactor,
            dispatcher=self.dispatcher,
            bus=self._runtime.bus,
            metrics=self.metrics,
            registry=self.registry,
            router=self.router,
            authenticators=self.authenticators,
            listening=self.listening,
            external=self.external_services,
            audit=self._audit,
            stores=self._stores,
            pages=self._pages,
            repositories=self._repositories,
            projects=AgentProjects(reactor) if gitlab is None else gitlab.projects,
            environ=self._runtime.environ,
            has_web=self.web is not None,
            tracer=self._runtime.tracer,
            count_usage=None if usage is None else usage.count,
            count_together=None if self._limits is None else self._limits.under_way,
            page_origins=() if settings is None else settings.origins,
        )

    def _make_acceptor(self, worker: Worker | None) -> AgentAcceptor:
        settings, runtime = self.configuration.agent.listen, self._runtime
        rate = ConnectionRate(
            settings.connections_per_token_per_minute, runtime.reactor
        )
        if self._limits is not None:
            rate.tell = self._limits.happening("connections", rate.count)
        timing = attrs.evolve(AGENT_TIMING, resume_grace=settings.resume_grace_period)
        return AgentAcceptor(
            authenticate=self.authenticators.authenticate_agent,
            registry=self.registry,
            dispatcher=self.dispatcher,
            bus=runtime.bus,
            clock=runtime.reactor,
            rate=rate,
            kas_id=runtime.instance_id,
            now=runtime.now,
            timing=timing,
            workers=1 if worker is None else len(worker.urls),
            refusals=self.refusals,
        )

    def _make_place(
        self, state: StateDirectory, worker: Worker | None
    ) -> RunningRecord | SupervisedWorker:
        """Return the part that makes this process known on this machine."""
        if worker is None:
            alone = self.configuration.redis is None
            return RunningRecord(state, alone, lambda: self.listening.opened)
        acceptor, reactor = self._acceptor, self._runtime.reactor
        return SupervisedWorker(self.listening, lambda: acceptor.draining, reactor)

    def _register_metrics(self) -> None:
        metrics = self.metrics
        metrics.register(GitCollector(self._repositories))
        metrics.register(self._audit)
        if self.web is not None:
            metrics.register(self.web.collector)
        metrics.register(FleetCollector(self.fleet, self.router, self.balance))
        if self.fleet.redis is not None:
            self._redis["directory"] = self.fleet.redis
            metrics.register(RedisCollector(self._redis))
        register_process_metrics(
            metrics, "kas", self.listening, lambda: self.dropped_lines
        )

    def _parts(
        self, state: StateDirectory, sockets: Mapping[str, int]
    ) -> Sequence[Part]:
        """Return the parts, each after the parts that it needs."""
        runtime, configuration = self._runtime, self.configuration
        reactor, agent = runtime.reactor, configuration.agent
        errors = ErrorReports(configuration.observability.sentry, "kas", reactor)
        parts: list[Part] = [
            self._place,
            *telemetry_parts(errors, runtime.tracer, reactor),
        ]
        parts.append(
            Steps(
                "credentials",
                start=self._start_checks,
                stop=self.authenticators.stop,
            )
        )
        parts.append(
            Steps(
                "absences",
                start=partial(self.last_seen.start, runtime.bus),
                stop=self.last_seen.stop,
            )
        )
        parts += [
            Steps("stores", stop=self._stores.stop),
            Steps(
                "repositories",
                start=self._repositories.start,
                stop=self._repositories.stop,
            ),
        ]
        if self._gitlab is not None:
            parts.append(self._gitlab)
        parts += [
            Steps(
                "ports",
                drain={Phase.READINESS: self._stop_listening},
                stop=self.listening.close_all,
            ),
            self._certificate,
            Steps(
                "modules",
                start=self.modules.start,
                drain={
                    Phase.REQUESTS: self._drain_requests,
                    Phase.MODULES: self.modules.stop,
                },
                stop=self.modules.stop,
            ),
            self._observability,
            FleetPart(
                self.fleet,
                self.balance,
                agent.listen,
                self.listening,
                self.fleet.redis is None and isinstance(self._place, RunningRecord),
            ),
            Steps("streams", drain={Phase.SESSIONS: self.router.keeper.stop}),
            AgentsPart(agent.listen, self._acceptor, self.listening, runtime),
        ]
        operations = Operations(
            self._acceptor,
            self.fleet,
            self.balance,
            self.router,
            self.health,
            self.identity,
            self.last_seen,
            self._audit,
            self._about,
        )
        calls = operators_factory(self.external_services, reactor)
        for prefix, factory, commands in (
            (CONTROL, control_site(operations), "drain and rebalance"),
            (CALLS, calls, "gitops"),
        ):
            handed = sockets.get(prefix.rstrip("-"))
            one = ProcessSocket(state, prefix, factory, reactor, commands, handed)
            parts.append(Steps(f"kasctl {commands}", start=one.open, stop=one.close))
        parts.append(Steps("balance", start=self.balance.start))
        parts += [
            _listener(one) for one in (self.external, self.web) if one is not None
        ]
        watchdog = sdnotify.Watchdog(reactor)
        parts.append(
            Steps(
                "readiness",
                start=partial(self._become_ready, watchdog),
                drain={Phase.READINESS: partial(self._become_unready, watchdog)},
            )
        )
        return parts

    def _about(self) -> dict[str, Any]:
        problems = self._context.problems.by_module
        return describe(self._acceptor.draining, self.registry, self.fleet, problems)

    def _credentials_in_use(self) -> set[str]:
        return self._context.held.ids()

    def startService(self) -> None:
        """Begin; a failure to do so ends the process with its reason."""
        super().startService()  # type: ignore[no-untyped-call]
        self.start_logging(self._runtime.reactor)
        for remark in self._remarks:
            self._log.warn("{remark}", remark=remark)
        self._audit.start(self._runtime.reactor)
        if isinstance(self._place, SupervisedWorker):
            self._place.listen_to_supervisor()
        start_or_exit(self._tree.start(), self._runtime.reactor)

    def _start_checks(self) -> None:
        self.authenticators.start(self._revoked)
        if self._gitlab is not None and self.identity.agents():
            self._log.warn(
                "GitLab decides which agents may connect ('gitlab'): agents of the "
                "identity file cannot connect"
            )

    def _become_ready(self, watchdog: sdnotify.Watchdog) -> None:
        redis = self.configuration.redis
        if redis is not None and redis.tls.certificate_file is not None:
            self.listening.follow("redis", redis.tls.certificate_file)
        self._place.publish()
        self.health.ready = True
        sdnotify.notify("READY=1")
        watchdog.start()
        settle()
        me = self._runtime.instance_id.hex()
        if isinstance(self._place, SupervisedWorker):
            self._log.info("this worker is known to others as {me}", me=me)
        else:
            self._log.info("kas is ready, known to others as {me}", me=me)

    def _become_unready(self, watchdog: sdnotify.Watchdog) -> None:
        self.health.ready = False
        sdnotify.notify("STOPPING=1")
        watchdog.stop()

    def _revoked(self, credential_id: str) -> None:
        self.registry.revoke(credential_id)
        self._runtime.bus.publish(CredentialRevoked(credential_id))

    def reload(self) -> None:
        """Open the logs again, and read certificates, identities and secrets again."""
        self.reopen_log()
        self._audit.reopen()
        self._log.info(
            "SIGHUP: certificates, identities and secrets are read again; the "
            "configuration file is not, it counts from the next start"
        )
        reread_files()

    def stopService(self) -> Deferred[None]:
        """Accept nothing, send agents away, finish running requests, then close."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._tree.end())

    def _stop_listening(self) -> None:
        self.listening.ending = True

    async def _drain_requests(self) -> None:
        """Close the modules' ports, and wait for running requests."""
        await self._context.ports.close()
        self._api_health.drain()
        self._runtime.bus.publish(Draining())
        grace = self.configuration.agent.listen.shutdown_grace_period
        await until(self._is_idle, self._runtime.reactor, grace)

    def _is_idle(self) -> bool:
        return not (
            any(one.tunnel.load for one in self.registry.tunnels())
            or self.router.remote
            or (self.fleet.gateway is not None and self.fleet.gateway.load)
        )


def _runtime(
    configuration: KasConfiguration,
    reactor: Any,
    now: Callable[[], float],
    environ: Mapping[str, str],
) -> Runtime:
    random = secrets.SystemRandom().random
    runtime = Runtime(
        reactor=reactor,
        now=now,
        random=random,
        environ=environ,
        instance_id=secrets.token_bytes(16),
        flusher=Flusher(reactor),
        keepalive=Keepalive(reactor),
    )
    settings = configuration.observability.tracing
    if settings is None:
        return runtime
    me, ratio = runtime.instance_id.hex(), settings.sample_ratio
    tracer = Tracer(settings, "kas", me, ratio, random)
    runtime.metrics.register(tracer)
    return attrs.evolve(runtime, tracer=tracer)


def _repositories(
    configuration: KasConfiguration, state: StateDirectory, runtime: Runtime
) -> Repositories:
    every = configuration.gitaly.global_api_rate_limit
    each = configuration.gitaly.per_server_api_rate_limit
    limits = GitLimits(
        gitaly_rate=every.refill_rate_per_second,
        gitaly_burst=every.bucket_size,
        gitaly_server_rate=each.refill_rate_per_second,
        gitaly_server_burst=each.bucket_size,
    )
    return Repositories(state, runtime.reactor, limits, runtime.environ, runtime.now)


def _listener(listener: DrainingListener) -> Part:
    async def drain() -> None:
        await listener.drain()
        await listener.stop()

    return Steps(
        "a listener",
        start=listener.start,
        drain={Phase.REQUESTS: drain},
        stop=listener.stop,
    )


def _credential_caching(modules: list[Prepared]) -> CredentialCaching:
    """
    Return the lifetimes of cached credentials, from the module that users connect to.
    """
    for module in modules:
        if isinstance(module.configuration, CredentialCaching):
            return module.configuration
    return CredentialCaching()
