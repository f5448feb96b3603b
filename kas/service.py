"""Service of kas: the only place that wires its parts together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from twisted.logger import Logger

from kas.agents.last_seen import LastSeen
from kas.agents.part import AgentsPart
from kas.agents.registry import Registry
from kas.api.part import ApiPart
from kas.audit.part import AuditParts
from kas.config.loading import certificate_names
from kas.config.own_address import interface_addresses
from kas.config.schema import KasConfiguration
from kas.credentials import CredentialsPart
from kas.fleet.fleet import Fleet
from kas.fleet.part import FleetPart
from kas.git.part import make_repositories
from kas.modules import ServerContext
from kas.modules.part import ModulesPart
from kas.modules.peers import ModulePeers
from kas.observability.fleet_metrics import FleetCollector
from kas.observability.part import ObservabilityPart
from kas.observability.site import Health
from kas.operations import Operations, kasctl_sockets
from kas.routing.router import Router
from kas.state.development_certificate import DevelopmentCertificate
from kas.state.directory import StateDirectory
from kas.state.running_record import Announcer, RunningRecord
from kas.storage.backend import Changed, make_stores
from kas.web.listener import WebListener
from tunnel.hosting.modules import Prepared
from tunnel.hosting.pages import Pages
from tunnel.program import sdnotify
from tunnel.program.listening import Listening
from tunnel.program.parts import Part, Phase, Steps
from tunnel.program.process_metrics import register_process_metrics
from tunnel.program.runtime import Runtime
from tunnel.program.service import ProgramService
from tunnel.program.telemetry import telemetry_parts
from tunnel.program.tuning import settle
from tunnel.rpc.dispatch import Dispatcher
from tunnel.toolkit.files import reread_files

__all__ = ["KasService"]


class KasService(ProgramService):
    """
    Service of one process of kas, which may be one of several workers; the supervisor
    of the workers is `kas.workers.service`.

    :param sockets: sockets on which another process already listens, by configuration
        section.
    :param sibling_urls: the addresses of the other workers of this kas.
    """

    _log = Logger()
    _ready_text = "kas is ready; instance id: {me}"

    def __init__(
        self,
        configuration: KasConfiguration,
        modules: Sequence[Prepared],
        state: StateDirectory,
        reactor: Any,
        *,
        environ: Mapping[str, str] = os.environ,
        remarks: Sequence[str] = (),
        sockets: Mapping[str, int] = MappingProxyType({}),
        sibling_urls: Sequence[str] = (),
    ) -> None:
        super().__init__("kas", reactor, remarks)
        tracing, agent = configuration.observability.tracing, configuration.agent
        ratio = 0.0 if tracing is None else tracing.sample_ratio
        runtime = Runtime(reactor=reactor, environ=environ)
        self._runtime = runtime = runtime.traced(tracing, "kas", ratio)
        self.metrics = runtime.metrics
        self.dispatcher = Dispatcher(reactor, tracer=runtime.tracer)
        self.registry = Registry()
        names = certificate_names(configuration, modules, environ)
        certificate = DevelopmentCertificate(state, runtime, names)
        self.listening = listening = Listening(
            reactor, certificate.certificate, "kas", runtime.now, sockets
        )
        self.fleet = Fleet(
            configuration,
            self.registry,
            runtime,
            interface_addresses,
            certificate.files,
            sibling_urls,
        )
        fleet = FleetPart(self.fleet, agent.listen, listening)
        self._stores = make_stores(
            configuration,
            state,
            runtime,
            self.fleet.redis,
            self._store_listener,
            self.fleet.secrets,
        )
        self._credentials = credentials = CredentialsPart(
            configuration,
            modules,
            state,
            runtime,
            self.registry,
            self._stores,
            self.fleet.redis,
            lambda: self._context.held.ids(),
        )
        self.identity = credentials.identity
        last_seen = LastSeen(
            state,
            lambda: {one.agent.agent_id for one in self.registry},
            credentials.find_agent,
            self.fleet.directory,
            runtime,
        )
        self.router = Router(
            self.registry,
            self.fleet.directory,
            runtime,
            peers=self.fleet.peers,
            resume_grace=agent.listen.resume_grace_period,
            absences=last_seen,
            may_connect=self.identity.may_connect,
        )
        self._agents = AgentsPart(
            agent.listen,
            credentials.authenticators.authenticate_agent,
            self.registry,
            self.dispatcher,
            listening,
            runtime,
        )
        self._audit = AuditParts(configuration.observability.audit, runtime, state)
        sign_ins = self._audit.sign_ins
        credentials.authenticators.sign_ins = sign_ins
        api = ApiPart(configuration.api, listening, runtime, sign_ins)
        git = make_repositories(configuration.gitaly, state, runtime)
        pages = Pages()
        web: list[Part] = []
        if configuration.web is not None:
            web.append(WebListener(configuration.web, pages, listening, runtime))
        gitlab = credentials.gitlab
        gitlab.access.serve(self.dispatcher)
        self._context = ServerContext(
            reactor=reactor,
            dispatcher=self.dispatcher,
            bus=runtime.bus,
            metrics=runtime.metrics,
            registry=self.registry,
            router=self.router,
            authenticators=credentials.authenticators,
            listening=listening,
            fleet=self.fleet,
            external=api.services,
            audit=self._audit.log,
            stores=self._stores,
            folders=state.file("modules"),
            pages=pages,
            repositories=git,
            projects=gitlab.projects,
            environ=environ,
            has_web=bool(web),
            tracer=runtime.tracer,
            count_usage=None if gitlab.usage is None else gitlab.usage.count,
            page_origins=gitlab.origins,
            sign_in_providers=credentials.sign_in_providers,
        )
        self._audit.serve(api.services, ModulePeers.of_kas("audit", self.fleet))
        grace = agent.listen.shutdown_grace_period
        hosted = ModulesPart(modules, self._context, grace)
        self.modules = hosted.host
        self.health = Health(
            self.registry,
            self.router,
            lambda: self.modules.states,
            lambda: len(self.fleet.others()),
            lambda: operations.about(),
            self._agents.acceptor.refusals,
        )
        self._observability = ObservabilityPart(
            configuration.observability, self.health, listening, runtime
        )
        operations = Operations(
            self._agents.acceptor,
            self.fleet,
            fleet.balance,
            self.health,
            self.identity,
            last_seen,
            self._audit.log,
            self._context.problems.by_module,
        )
        self.metrics.register(FleetCollector(self.fleet, self.router, fleet.balance))
        register_process_metrics(
            self.metrics, "kas", listening, lambda: self.dropped_lines
        )
        self._place = self._make_place(state, configuration)
        self.compose(
            *self._audit.parts,
            self._place,
            *telemetry_parts(configuration.observability.sentry, "kas", runtime),
            credentials,
            Steps("absences", start=last_seen.start, stop=last_seen.stop),
            Steps("stores", stop=self._stores.stop),
            git,
            gitlab,
            listening,
            certificate,
            hosted,
            self._observability,
            fleet,
            Steps("streams", drain={Phase.SESSIONS: self.router.keeper.stop}),
            self._agents,
            *kasctl_sockets(operations, api.services, state, sockets),
            api,
            *web,
            Steps("readiness", start=self._become_ready),
            sdnotify.Watchdog(reactor),
        )

    def _make_place(
        self, state: StateDirectory, configuration: KasConfiguration
    ) -> Announcer:
        """Return the part that announces this process on this machine."""
        alone = configuration.redis is None
        enforces = configuration.observability.enforces_administration
        return RunningRecord(state, alone, lambda: self.listening.opened, enforces)

    def _store_listener(self) -> Changed | None:
        """Return the listener for changes of stores, as `make_stores` expects it."""
        return None

    def _become_ready(self) -> None:
        self._place.publish()
        self.health.ready = True
        sdnotify.notify("READY=1")
        settle()
        self._log.info(self._ready_text, me=self._runtime.instance_id.hex())

    def reload(self) -> None:
        """Reopen the logs, and read certificates, identities and secrets again."""
        self.reopen_log()
        self._audit.log.reopen()
        self._log.info(
            "SIGHUP: read certificates, identities and secrets again; changes of the "
            "configuration file need a restart"
        )
        reread_files()
