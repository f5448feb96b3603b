"""The service tree of kas; the only place that wires its parts together."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from prometheus_client import CollectorRegistry
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from kas.agents.acceptor import (
    AGENT_TIMING,
    REFUSALS,
    AgentAcceptor,
    AgentFactory,
    ConnectionRate,
)
from kas.agents.last_seen import LastSeen
from kas.agents.registry import Registry
from kas.agents.reports import AgentReports
from kas.api.listener import ExternalApi, operators_factory
from kas.api.own_services import HEALTH, SERVER_INFO, ApiHealth, ServerInfo
from kas.api.services import ExternalServices
from kas.config.gitlab import GitLab
from kas.config.loading import certificate_names
from kas.config.oidc import OpenIdConnect
from kas.config.own_address import interface_addresses
from kas.config.schema import KasConfiguration, KasTracing
from kas.fleet.balance import PER_SECOND, Balance
from kas.fleet.fleet import Fleet
from kas.git.limits import GitLimits
from kas.git.metrics import GitCollector
from kas.git.repositories import Repositories
from kas.gitlab.access import GitLabForAgents
from kas.gitlab.agents import GitLabAgents, OfGitLab
from kas.gitlab.cache import Lifetimes, Refusals
from kas.gitlab.client import MAX_REQUESTS, GitLabClient
from kas.gitlab.jobs import GitLabJobs
from kas.gitlab.metrics import GitLabCollector
from kas.gitlab.projects import AgentProjects
from kas.gitlab.registrations import Registrations
from kas.gitlab.renewal import Renewal
from kas.gitlab.usage import UsageReport
from kas.gitlab.users import PERSONAL_ACCESS_TOKENS, SESSIONS, GitLabUsers
from kas.http_client import make_agent
from kas.identity.authenticators import Authenticators
from kas.identity.failed_checks import FailedChecks
from kas.identity.file_authenticator import FileAuthenticator
from kas.modules import ServerContext, ServerModuleApi
from kas.observability.audit import AuditLog
from kas.observability.fleet_metrics import FleetCollector
from kas.observability.overview import overview
from kas.observability.redis_metrics import RedisCollector
from kas.observability.site import Health, make_site
from kas.oidc.authenticator import TOKEN_PREFIX, OidcAuthenticator
from kas.oidc.keys import ProviderKeys
from kas.routing.router import Router
from kas.state import pki, running
from kas.state.control import control_site, parse_change
from kas.state.directory import StateDirectory
from kas.state.process_socket import CALLS, CONTROL, ProcessSocket
from kas.web.draining import DrainingListener
from kas.web.listener import WebListener
from kas.workers.limits import SharedLimits
from kas.workers.parent import Parent
from kas.workers.worker import Worker
from tunnel.config import CredentialCaching
from tunnel.errors import ConfigurationError, ErrorCode
from tunnel.hosting.events import EventBus
from tunnel.hosting.modules import ModuleHost, Prepared
from tunnel.hosting.pages import Pages
from tunnel.hosting.stores import StoreBackend, Stores
from tunnel.interfaces import ConnectedAgent, IServerModule
from tunnel.program import sdnotify
from tunnel.program.inherited_port import InheritedPort
from tunnel.program.listening import Listening
from tunnel.program.logs import LoggingService
from tunnel.program.process_metrics import register_process_metrics
from tunnel.program.sentry import ErrorReports
from tunnel.program.site import Site
from tunnel.program.startup import start_or_exit
from tunnel.program.tracing import Tracer
from tunnel.program.tuning import settle
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Keepalive
from tunnel.session.resume import Keeper, ResumeLimits
from tunnel.transport.first_bytes import TunnelOrWebSocketFactory
from tunnel.transport.tls import ALPN_TUNNEL
from tunnel.transport.websocket import wrap_websocket_server
from tunnel.util.files import reread_files
from tunnel.util.flusher import Flusher
from tunnel.util.until import until

if TYPE_CHECKING:
    from kas.redis import RedisClient

#: Seconds between two looks at whether the development certificate is due: it is two
#: thirds through its life then, so hours do not matter.
RENEWAL_INTERVAL = 3600.0

ONE_DAY = 24 * 3600.0

#: A kas holds the streams of all agents, and is not counted in MiB as agentk is.
KAS_RESUME_LIMITS = ResumeLimits(kept=256 << 20, kept_per_owner=32 << 20)

#: Seconds that agents get to connect elsewhere before this kas goes on stopping.
LEAVE_PATIENCE = 15.0


#: Problems of agents that `kasctl status` shows.
SHOWN_PROBLEMS = 100

#: Seconds that other kas have for an answer when an operator asks for them and waits.
PEERS_PATIENCE = 2.0


class KasService(LoggingService, Service):
    """Everything that one kas is."""

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
        self._parent: Parent | None = None
        if worker is not None:
            self._parent = Parent(reactor, lambda: self.draining, self._orphaned)
        self._shares_store = worker is not None and worker.shares_store
        self._workers = 1 if worker is None else len(worker.urls)
        if worker is not None:
            configuration, environ = worker.configure(configuration, environ)
        self._remarks = remarks
        self.configuration = configuration
        self._state = state
        self._reactor = reactor
        self._now = now
        self._names = certificate_names(configuration, modules, environ)
        self._kas_id = secrets.token_bytes(16)
        self.metrics = CollectorRegistry()
        self.registry = Registry()
        self.bus = EventBus()
        self._errors = ErrorReports(configuration.observability.sentry, "kas", reactor)
        self._tracer = self._trace(configuration.observability.tracing)
        self.dispatcher = Dispatcher(reactor, tracer=self._tracer)
        self._keepalive = Keepalive(reactor)
        self._flusher = Flusher(reactor)
        random = secrets.SystemRandom().random
        self.fleet = Fleet(
            configuration,
            self.registry,
            self.bus,
            reactor,
            self._flusher,
            self._keepalive,
            self._kas_id,
            random,
            now,
            environ,
            interface_addresses,
            self._development_files,
            self._tracer,
            () if worker is None else worker.sibling_urls,
        )
        self.balance = Balance(self.registry, self.fleet.directory, reactor, random)
        self.identity = FileAuthenticator(
            state.file("identity.json"),
            reactor,
            now,
            elsewhere=configuration.gitlab is not None,
        )
        self.authenticators = Authenticators(reactor)
        self.authenticators.add(self.identity)
        self._redis: dict[str, RedisClient] = {}
        self._stores = Stores(self._make_backend, reactor)
        self._projects = AgentProjects(reactor)
        self._usage: UsageReport | None = None
        self._registrations: Registrations | None = None
        self._gitlab_agents: GitLabAgents | None = None
        #: Repeated checks of credentials in use with GitLab; empty without GitLab.
        self._gitlab_renewals: list[Renewal[Any, Any]] = []
        gitlab: GitLabClient | None = None
        if configuration.gitlab is not None:
            gitlab = self._ask_gitlab(configuration.gitlab, modules, environ)
        self._oidc: OidcAuthenticator | None = None
        if configuration.oidc is not None:
            self._oidc = self._sign_in(configuration.oidc, environ)
        self._limits: SharedLimits | None = None
        if worker is not None and self.fleet.siblings is not None:
            self._limits = self.fleet.siblings.workers = SharedLimits(
                self._workers, self.fleet.siblings.used, self._stores
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
            random=random,
            absences=self.last_seen,
            may_connect=self.identity.may_connect,
        )
        handed = {} if worker is None else worker.sockets
        self.listening = Listening(
            reactor,
            self._development_certificate,
            program="kas",
            now=now,
            handed=handed,
        )
        self.external_services = ExternalServices(reactor, self._tracer)
        self._api_health = ApiHealth(lambda: self.external_services.names)
        self.external_services.handle("kas", HEALTH, self._api_health)
        self.external_services.handle("kas", SERVER_INFO, ServerInfo())
        self.external: ExternalApi | None = None
        if configuration.api is not None:
            self.external = ExternalApi(
                configuration.api.listen,
                self.external_services,
                self.listening,
                reactor,
                now=now,
                jitter=secrets.SystemRandom().random,
            )
        pages = Pages()
        self.web: WebListener | None = None
        if configuration.web is not None:
            self.web = WebListener(configuration.web, pages, self.listening, reactor)
            self.metrics.register(self.web.collector)
        every = configuration.gitaly.global_api_rate_limit
        each = configuration.gitaly.per_server_api_rate_limit
        limits = GitLimits(
            gitaly_rate=every.refill_rate_per_second,
            gitaly_burst=every.bucket_size,
            gitaly_server_rate=each.refill_rate_per_second,
            gitaly_server_burst=each.bucket_size,
        )
        self._repositories = Repositories(state, reactor, limits, environ, now)
        self.metrics.register(GitCollector(self._repositories))
        self._audit = AuditLog(
            configuration.observability.audit, self._kas_id.hex(), now
        )
        self.metrics.register(self._audit)
        self._context = context = ServerContext(
            reactor=reactor,
            dispatcher=self.dispatcher,
            bus=self.bus,
            metrics=self.metrics,
            registry=self.registry,
            router=self.router,
            authenticators=self.authenticators,
            listening=self.listening,
            external=self.external_services,
            audit=self._audit,
            stores=self._stores,
            pages=pages,
            repositories=self._repositories,
            projects=self._projects,
            environ=environ,
            has_web=self.web is not None,
            tracer=self._tracer,
            count_usage=None if self._usage is None else self._usage.count,
            count_together=None if self._limits is None else self._limits.under_way,
            page_origins=()
            if configuration.gitlab is None
            else configuration.gitlab.origins,
        )
        self.modules = ModuleHost(
            modules,
            interface=IServerModule,
            make_api=lambda one: ServerModuleApi(context, one, self.modules.fail),
            release=context.release,
            clock=reactor,
            jitter=random,
        )
        register_process_metrics(
            self.metrics, "kas", self.listening, lambda: self.dropped_lines
        )
        self.refusals: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))
        self.metrics.register(FleetCollector(self.fleet, self.router, self.balance))
        if self.fleet.redis is not None:
            self._redis["directory"] = self.fleet.redis
            self.metrics.register(RedisCollector(self._redis))
        self.health = Health(
            self.registry,
            self.router,
            lambda: self.modules.states,
            lambda: len(self.fleet.others()),
            self.about,
            self.refusals,
        )
        AgentReports(self.registry, self.bus, reactor).serve(self.dispatcher)
        access = GitLabForAgents(gitlab, self._gitlab_token, reactor)
        access.serve(self.dispatcher)
        if gitlab is not None:
            self.metrics.register(GitLabCollector(gitlab, access))
        self._sockets = [
            ProcessSocket(
                state,
                CONTROL,
                control_site(self),
                reactor,
                "drain and rebalance",
                handed.get("control"),
            ),
            ProcessSocket(
                state,
                CALLS,
                operators_factory(self.external_services, reactor),
                reactor,
                "gitops",
                handed.get("calls"),
            ),
        ]
        self._acceptor: AgentAcceptor | None = None
        self._agent_port: IListeningPort | None = None
        self._observability_port: IListeningPort | None = None
        self._site: Site | None = None
        self._watchdog = sdnotify.Watchdog(reactor)
        self._renewal = LoopingCall(self._renew)
        self._told_of_expiry: float | None = None
        #: Open while no other kas without Redis may use the state directory.
        self._held: int | None = None
        self._renewal.clock = reactor

    def _trace(self, settings: KasTracing | None) -> Tracer | None:
        if settings is None:
            return None
        tracer = Tracer(
            settings,
            "kas",
            self._kas_id.hex(),
            settings.sample_ratio,
            secrets.SystemRandom().random,
        )
        self.metrics.register(tracer)
        return tracer

    def _ask_gitlab(
        self, settings: GitLab, modules: list[Prepared], environ: Mapping[str, str]
    ) -> GitLabClient:
        """Have GitLab say who comes, besides the identity file."""
        reactor = self._reactor
        agent = make_agent(
            settings.ca_certificate_file,
            "gitlab.ca_certificate_file",
            reactor,
            environ,
            connections=MAX_REQUESTS,
        )
        client = GitLabClient(settings, agent, reactor, self._now)
        shared = partial(self._shared_refusals, client.is_taken)
        self._projects = AgentProjects(
            reactor, client, moved=partial(self.bus.publish, "agent.moved")
        )
        times = self.configuration.agent
        of_agents = Lifetimes(
            success=times.info_cache_ttl,
            error=times.info_cache_error_ttl,
            outage=times.info_cache_outage_ttl,
        )
        agents = GitLabAgents(
            client,
            of_agents,
            lambda: {one.credential_id for one in self.registry.tunnels()},
            reactor,
            self._projects,
            shared("agent_info_errs"),
        )
        self._gitlab_agents = agents
        caching = _credential_caching(modules)
        of_users = Lifetimes(
            success=caching.allowed_agent_cache_ttl,
            error=caching.allowed_agent_cache_error_ttl,
            outage=caching.allowed_agent_cache_outage_ttl,
        )
        in_use = self._credentials_in_use
        # Nothing of this kas is in the question: only the job's own token.
        of_jobs = self._shared_refusals(lambda: True, "allowed_agents_errs")
        jobs = GitLabJobs(client, of_users, in_use, reactor, of_jobs)
        people = [
            GitLabUsers(
                kind,
                client,
                of_users,
                in_use,
                reactor,
                shared(f"auth_proxy_user_errs:{kind.access_type}"),
            )
            for kind in (PERSONAL_ACCESS_TOKENS, SESSIONS)
        ]
        authenticators = self.authenticators
        authenticators.failed = FailedChecks(
            settings.failed_checks_per_address_per_minute, reactor
        )
        period = self.configuration.observability.usage_reporting_period
        if period:
            store = self._stores.open("kas.gitlab", "usage")
            me = self._kas_id.hex()
            self._usage = UsageReport(client.post, store, me, period, reactor)
            told = self._registrations = Registrations(client.post, period, reactor)
            self.bus.subscribe("kas", "agent.connected", told.connected)
        asking: list[GitLabAgents | GitLabJobs | GitLabUsers] = [agents, jobs, *people]
        for one in asking:
            authenticators.add(one)
            self._gitlab_renewals.append(one.renewal)
        return client

    def _shared_refusals(
        self, proven: Callable[[], bool], family: str
    ) -> Refusals | None:
        """Return GitLab's refusals, shared by all kas; None: this one is alone."""
        redis, settings = self.fleet.redis, self.configuration.redis
        if redis is None or settings is None:
            return None
        # Here, because it imports the reactor.
        from kas.gitlab.refusals import SharedRefusals

        return SharedRefusals(redis, settings.key_prefix, family, self._reactor, proven)

    def _sign_in(
        self, settings: OpenIdConnect, environ: Mapping[str, str]
    ) -> OidcAuthenticator:
        """Add sign-in with an identity provider."""
        reactor = self._reactor
        agent = make_agent(
            settings.ca_certificate_file,
            "oidc.ca_certificate_file",
            reactor,
            environ,
            connections=1,
        )
        keys = ProviderKeys(settings, agent, reactor)
        self.metrics.register(keys)
        authenticator = OidcAuthenticator(
            settings,
            keys,
            self.identity.find_agent,
            self._credentials_in_use,
            reactor,
            self._now,
        )
        self.authenticators.add(authenticator, TOKEN_PREFIX)
        return authenticator

    def _gitlab_token(self, agent: ConnectedAgent) -> bytes | None:
        """The token of GitLab that an agent is connected with."""
        connection = self.registry.connection(agent)
        if connection is None or self._gitlab_agents is None:
            return None
        return self._gitlab_agents.renewal.subject(connection.credential_id)

    def _credentials_in_use(self) -> set[str]:
        return self._context.held_credentials()

    def startService(self) -> None:
        """Begin; a failure to do so ends the process with its reason."""
        super().startService()  # type: ignore[no-untyped-call]
        self.start_logging(self._reactor)
        for remark in self._remarks:
            self._log.warn("{remark}", remark=remark)
        self._audit.start(self._reactor)
        if self._parent is not None:
            self._parent.start()
        start_or_exit(self._start(), self._reactor)

    async def _start(self) -> None:
        if self._parent is None:
            running.refuse_twins(self._state)
            if self.configuration.redis is None:
                self._held = running.hold(self._state)
        self._errors.start()
        if self._tracer is not None:
            self._tracer.start(self._reactor)
        self.identity.start()
        self.identity.on_revoked(self._revoked)
        for renewal in self._gitlab_renewals:
            renewal.on_revoked(self._revoked)
            renewal.start()
        if self._oidc is not None:
            self._oidc.on_revoked(self._revoked)
            self._oidc.start()
        if self._gitlab_renewals and self.identity.agents():
            self._log.warn(
                "GitLab decides which agents may connect ('gitlab'): agents of the "
                "identity file cannot connect"
            )
        if self._usage is not None:
            self._usage.start()
        if self._registrations is not None:
            self._registrations.start()
        self.last_seen.start(self.bus)
        self._repositories.start()
        await self.modules.start()
        observability = self.configuration.observability
        self._site = make_site(observability, self.health, self.metrics, self._reactor)
        self._observability_port = await self.listening.listen(
            observability.listen,
            self._site,
            what=running.OBSERVABILITY,
            setting="observability.listen.address",
        )
        redis = self.configuration.redis
        if redis is not None and redis.tls.certificate_file is not None:
            self.listening.follow("redis", redis.tls.certificate_file)
        await self.fleet.start(self.listening)
        alone = self.fleet.redis is None and self._parent is None
        if self.fleet.gateway is not None and alone:
            self._log.warn(
                "there is 'private_api' and no 'redis': this kas knows of no other, "
                "and is alone"
            )
        await self._listen_for_agents()
        for one in self._sockets:
            await one.open()
        self.balance.start()
        if self.external is not None:
            await self.external.start()
        if self.web is not None:
            await self.web.start()
        if self._parent is None:
            running.tell(self._state, self.listening.opened)
        self.health.ready = True
        sdnotify.notify("READY=1")
        self._watchdog.start()
        settle()
        me = self._kas_id.hex()
        if self._parent is not None:
            self._log.info("this worker is known to others as {me}", me=me)
            self._parent.ready(self.listening.opened)
        else:
            self._log.info("kas is ready, known to others as {me}", me=me)

    async def _listen_for_agents(self) -> None:
        settings = self.configuration.agent.listen
        rate = ConnectionRate(settings.connections_per_token_per_minute, self._reactor)
        if self._limits is not None:
            rate.tell = self._limits.happening("connections", rate.count)
        acceptor = self._acceptor = AgentAcceptor(
            authenticate=self.authenticators.authenticate_agent,
            registry=self.registry,
            dispatcher=self.dispatcher,
            bus=self.bus,
            clock=self._reactor,
            rate=rate,
            kas_id=self._kas_id,
            now=self._now,
            timing=attrs.evolve(
                AGENT_TIMING, resume_grace=settings.resume_grace_period
            ),
            workers=self._workers,
            refusals=self.refusals,
        )
        tunnels = AgentFactory(
            acceptor,
            clock=self._reactor,
            flusher=self._flusher,
            keepalive=self._keepalive,
        )
        # The first bytes tell a WebSocket from the tunnel itself, so one port does
        # for both whatever stands between.
        factory = TunnelOrWebSocketFactory(
            tunnels, wrap_websocket_server(tunnels, self._reactor), self._reactor
        )
        self._agent_port = await self.listening.listen(
            settings,
            factory,
            what=running.AGENTS,
            setting="agent.listen.address",
            alpn=(ALPN_TUNNEL, "http/1.1"),
        )
        if isinstance(self._agent_port, InheritedPort):
            acceptor.on_already_here = self._agent_port.give_way
        if not settings.tls and settings.network != "unix":
            self._log.warn(
                "agents connect without TLS: tokens and traffic can be read on the "
                "way; set certificate_file and key_file in agent.listen"
            )

    def _make_backend(self) -> StoreBackend:
        redis = self.configuration.redis
        if redis is None:
            # Here, because few modules store something: without one kas needs no
            # SQLite.
            from kas.storage.file_backend import FileBackend

            tell = None
            siblings = self.fleet.siblings
            if siblings is not None and self._shares_store:
                tell = siblings.stored
            return FileBackend(self._state, self._reactor, self._now, tell=tell)
        # Here, because it imports the reactor.
        from kas.storage.redis_backend import RedisBackend

        backend = RedisBackend(redis, self._reactor, secrets.SystemRandom().random)
        self._redis["stores"] = backend.client
        return backend

    def _revoked(self, credential_id: str) -> None:
        self.registry.revoke(credential_id)
        self.bus.publish("credential.revoked", credential_id)

    def _development_files(self) -> pki.ServerFiles:
        return pki.ensure(self._state, self._now, socket.gethostname(), self._names)

    def _development_certificate(self) -> tuple[Path, Path]:
        files = self._development_files()
        if not self._renewal.running:
            self._log.info(
                "development certificate {file}, pin {pin}",
                file=str(files.certificate_file),
                pin=files.pin,
            )
            self._warn_of_expiry(files)
            renewing = self._renewal.start(RENEWAL_INTERVAL, now=False)
            renewing.addErrback(lambda failure: None)
        return files.certificate_file, files.key_file

    def _renew(self) -> None:
        # The listeners read the new file by themselves.
        try:
            files = self._development_files()
        except (ConfigurationError, OSError):
            self._log.failure("the development certificate was not renewed")
        else:
            self._warn_of_expiry(files)

    def _warn_of_expiry(self, files: pki.ServerFiles) -> None:
        """Once a day, while the certificate will not be renewed."""
        now = self._reactor.seconds()
        told = self._told_of_expiry
        if files.problem is None or (told is not None and now - told < ONE_DAY):
            return
        self._told_of_expiry = now
        self._log.warn(
            "{problem}; the certificate expires on {day}",
            problem=files.problem,
            day=f"{files.expires_at:%Y-%m-%d}",
        )

    def reload(self) -> None:
        self.reopen_log()
        self._audit.reopen()
        self._log.info(
            "SIGHUP: certificates, identities and secrets are read again; the "
            "configuration file is not, it counts from the next start"
        )
        reread_files()

    # Requests of kasctl; see `kas.state.control.Controlled`.

    @property
    def draining(self) -> bool:
        """Whether the last order was to take no agents."""
        return self._acceptor is not None and self._acceptor.draining

    async def drain(self) -> dict[str, Any]:
        """Move every agent to another kas, accept none, and be not ready."""
        self._log.info("drained by order: every agent is asked to connect elsewhere")
        self.health.ready = False
        self.balance.stop()
        if self._acceptor is not None:
            self._acceptor.draining = True
        self.fleet.update(draining=True)
        self.balance.send_away(self.registry.tunnels(), "this kas is being drained")
        return await self.progress()

    async def undrain(self) -> dict[str, Any]:
        """Accept agents again."""
        self._log.info("taken into service again")
        if self._acceptor is not None:
            self._acceptor.draining = False
        self.fleet.update(draining=False)
        self.balance.start()
        self.health.ready = True
        return await self.progress()

    async def rebalance(self) -> dict[str, Any]:
        """Move agents above the mean; ``asked`` counts them."""
        asked = self.balance.rebalance()
        return await self.progress() | ({"asked": asked} if asked else {})

    async def record_change(self, body: bytes) -> dict[str, Any]:
        """Write a change that `kasctl` made to the audit log."""
        self._audit.record("kasctl", parse_change(body))
        return {}

    async def progress(self) -> dict[str, Any]:
        """Return the numbers of agents and requests that are still here."""
        streams = sum(one.tunnel.load for one in self.registry.tunnels())
        return {
            **self.about(),
            "ready": self.health.ready,
            "agents": self.registry.agents,
            "requests": streams + self.router.remote,
        }

    async def agents(self) -> dict[str, Any]:
        """Every agent of the identity file; see `kas.observability.overview`."""
        return await overview(
            self.identity.agents(), self.fleet.directory, self.last_seen
        )

    def about(self) -> dict[str, Any]:
        """This process, and what it knows of Redis and the other kas."""
        fleet = self.fleet
        known: dict[str, Any] = {
            "pid": os.getpid(),
            "draining": self.draining,
        }
        problems = {
            one.agent.agent_name: one.agent.cluster_problem
            for one in self.registry
            if one.agent.cluster_problem
        }
        if problems:
            known["cluster_problems"] = problems
        said = [
            (f"{name}: {module}", why)
            for module, agents in self._context.problems.items()
            for name, why in agents.values()
        ]
        said += [
            (f"{one.agent.agent_name}: {module}", f"restarting: {why}")
            for one in self.registry
            for module, why in one.restarting.items()
        ]
        if said:
            known["agent_problems"] = dict(said[:SHOWN_PROBLEMS])
        if fleet.redis is not None:
            known["redis"] = {
                "up": fleet.redis.up,
                "news": fleet.redis.listening,
                "reason": fleet.redis.reason,
            }
        if fleet.peers is not None and fleet.siblings is None:
            others = [fleet.peers.at(one.url) for one in fleet.others()]
            known["own_url"] = fleet.directory.me.url
            known["peers"] = len(others)
            known["peer_sessions"] = fleet.peers.connected
            problems = {peer.url: peer.problem for peer in others if peer.problem}
            if problems:
                known["peer_problems"] = problems
            known["unreachable_peers"] = sorted(
                peer.url for peer in others if not peer.worth_trying
            )
        if fleet.gateway is not None and fleet.gateway.refusal:
            known["refused_peer"] = fleet.gateway.refusal
        return known

    async def peers(self) -> dict[str, Any]:
        """As `about`, after the other kas without a session were dialled."""
        await self.fleet.dial_all(PEERS_PATIENCE)
        return self.about()

    # The end.

    def stopService(self) -> Deferred[None]:
        """
        SIGTERM came: accept nothing, send agents away, finish what runs, then close.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        stopped_at = self._reactor.seconds()
        self.health.ready = False
        self.listening.ending = True
        if self._parent is None:
            running.leave(self._state)
        if self._held is not None:
            # A successor may start while this one ends what it has.
            os.close(self._held)
            self._held = None
        sdnotify.notify("STOPPING=1")
        self._watchdog.stop()
        if self._renewal.running:
            self._renewal.stop()
        self.balance.stop()
        # Agents leave first, and requests are accepted as long as they arrive, because
        # load balancers must first notice that this kas is not ready.
        if self._agent_port is not None:
            await self.listening.close(self._agent_port)
        self.fleet.leave()
        grace = self.configuration.agent.listen.shutdown_grace_period
        # Many are spread over more time, and all of it is theirs.
        patience = LEAVE_PATIENCE + len(self.registry) / PER_SECOND
        self.balance.send_away(
            self.registry.tunnels(), "kas is shutting down", deadline=patience + grace
        )
        if self.fleet.others():
            await self._let_agents_leave(patience)
        # Health stays, because operators watch the end.
        for ports in self._context.ports.values():
            for port in ports:
                await self.listening.close(port)
        self._api_health.drain()
        self.bus.publish("kas.draining", None)
        draining = [
            Deferred.fromCoroutine(self._end(one))
            for one in (self.external, self.web)
            if one is not None
        ]
        await until(self._idle, self._reactor, grace)
        for ended in draining:
            await ended
        await self.modules.stop()
        if self._registrations is not None:
            self._registrations.stop()
        if self._usage is not None:
            await self._usage.stop()
        await self._stores.stop()
        self._repositories.stop()
        self.router.keeper.stop()
        for connection in self.registry.tunnels():
            connection.tunnel.end(ErrorCode.SHUTDOWN, "kas is shutting down")
        await self.fleet.stop()
        for one in self._sockets:
            await one.close()
        await self._end_observability(stopped_at)
        await self.listening.close_all()
        self.last_seen.stop()
        self.identity.stop()
        if self._oidc is not None:
            self._oidc.stop()
        for renewal in self._gitlab_renewals:
            renewal.stop()
        if self._tracer is not None:
            await self._tracer.stop(self._reactor)
        await self._errors.stop(self._reactor)
        if self._parent is not None:
            self._parent.stop()
        else:
            running.forget(self._state)

    def _orphaned(self) -> None:
        """
        Stop, because the supervisor is dead, and its successor needs every port now.

        Running requests may finish, as after an order to stop.
        """
        self._log.warn("the supervisor is gone: this worker ends what it has")
        self.listening.ending = True
        Deferred.fromCoroutine(self.listening.close_all()).addErrback(
            lambda failure: self._log.failure("while closing ports", failure)
        )

    async def _end(self, listener: DrainingListener) -> None:
        await listener.drain()
        await listener.stop()

    async def _let_agents_leave(self, patience: float) -> None:
        since = self._reactor.seconds()
        await until(lambda: not self.registry.agents, self._reactor, patience)
        # Load balancers look at readiness every few seconds.
        await self._rest_of(self.configuration.agent.listen.listen_grace_period, since)

    async def _rest_of(self, period: float, since: float) -> None:
        left = period - (self._reactor.seconds() - since)
        await until(lambda: False, self._reactor, left)

    async def _end_observability(self, stopped_at: float) -> None:
        """Answer probes for as long as is configured, and finish the last pages."""
        settings = self.configuration.observability.listen
        if self._observability_port is None or self._site is None:
            return
        await self._rest_of(settings.listen_grace_period, stopped_at)
        await self.listening.close(self._observability_port)
        site, grace = self._site, settings.shutdown_grace_period
        await until(lambda: not site.making, self._reactor, grace)

    def _idle(self) -> bool:
        return not (
            any(one.tunnel.load for one in self.registry.tunnels())
            or self.router.remote
            or (self.fleet.gateway is not None and self.fleet.gateway.load)
        )


def _credential_caching(modules: list[Prepared]) -> CredentialCaching:
    """
    Return the lifetimes of cached credentials, from the module that users connect to.
    """
    for module in modules:
        if isinstance(module.configuration, CredentialCaching):
            return module.configuration
    return CredentialCaching()
