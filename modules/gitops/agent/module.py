"""The GitOps module of agentk: reconciles each manifest project while agentk leads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer, provider

from modules.gitops.agent.drift.audit_log import KubernetesAuditLog
from modules.gitops.agent.drift.change_authors import Writes
from modules.gitops.agent.drift.watches import KindWatches
from modules.gitops.agent.inventory.handover import ProjectHandover
from modules.gitops.agent.inventory.inventory import InventoryStore
from modules.gitops.agent.inventory.orders import OrderStore
from modules.gitops.agent.inventory.writer import InventoryWriter
from modules.gitops.agent.project.context import Programs, ProjectContext
from modules.gitops.agent.project.control import Control
from modules.gitops.agent.project.dependencies import Dependencies
from modules.gitops.agent.project.failing import FailingReports
from modules.gitops.agent.project.leftovers import Leftovers
from modules.gitops.agent.project.metrics import GitopsMetrics
from modules.gitops.agent.project.project import Project
from modules.gitops.agent.project.pruned import PruneReports
from modules.gitops.agent.project.receivers import Receiver
from modules.gitops.agent.project.reports import DriftReports
from modules.gitops.agent.source.child_processes import PREVIEWS_AT_ONCE, ChildProcesses
from modules.gitops.agent.source.decryption import Decryptor
from modules.gitops.agent.source.folder import remove_leftovers
from modules.gitops.agent.source.rendering import Renderer
from modules.gitops.agent.source.threads import (
    COMMIT_THREADS,
    PREVIEW_THREADS,
    TextThreads,
)
from modules.gitops.wire import control_pb2, reports_pb2, rpc_pb2
from modules.gitops.wire.settings import (
    GitopsSection,
    ManifestProject,
    ReceiverSettings,
    is_namespace,
)
from tunnel.api import (
    SCOPE,
    AgentScope,
    ConfigurationRefused,
    IAgentModule,
    IAgentModuleApi,
    IAgentModuleFactory,
    KubernetesWrite,
)
from tunnel.config import ExistingFile, field
from tunnel.toolkit.parallel import in_parallel

__all__ = ["GitopsAgent", "GitopsOptions"]

GITOPS = rpc_pb2.DESCRIPTOR.services_by_name["Gitops"]
REPORTS = reports_pb2.DESCRIPTOR.services_by_name["GitopsReports"]
CONTROL = control_pb2.DESCRIPTOR.services_by_name["GitopsControl"]

#: Seconds until a project is restarted after an unexpected exception.
PAUSE = 60.0


def _is_namespace_or_none(instance: object, attribute: object, value: str) -> None:
    if value:
        is_namespace(instance, attribute, value)


@attrs.frozen(kw_only=True)
class GitopsOptions:
    """Section ``modules.gitops`` of agentk's configuration."""

    kustomize: str = field(default="kustomize", doc="the program, or its path")
    helm: str = field(default="helm", doc="the program, or its path")
    sops: str = field(default="sops", doc="the program, or its path")
    audit_log: ExistingFile | None = field(
        default=None,
        doc="the API server's audit log as JSON, to name users who bypass kas",
    )
    inventory_namespace: str = field(
        default="",
        doc="namespace of all inventories; agentk's own if empty",
        validator=_is_namespace_or_none,
    )


@provider(IAgentModuleFactory)
@implementer(IAgentModule)
class GitopsAgent:
    """
    agentk's half of the module, with one `Project` for each of
    ``gitops.manifest_projects``.
    """

    _log = Logger()
    configuration = GitopsOptions

    def __init__(self, api: IAgentModuleApi) -> None:
        self.name = api.name
        self._api = api
        options: GitopsOptions = api.configuration
        children = ChildProcesses(api.reactor)
        commit_threads = TextThreads(COMMIT_THREADS)
        self._renderer = Renderer(
            children, options.kustomize, options.helm, threads=commit_threads
        )
        self._decryptor = Decryptor(children, options.sops, threads=commit_threads)
        of_previews = ChildProcesses(api.reactor, PREVIEWS_AT_ONCE)
        preview_threads = TextThreads(PREVIEW_THREADS)
        self._preview_renderer = attrs.evolve(
            self._renderer, children=of_previews, threads=preview_threads
        )
        self._preview_decryptor = attrs.evolve(
            self._decryptor, children=of_previews, threads=preview_threads
        )
        self._inventories = options.inventory_namespace
        # Keep clients from changing agentk's records: orders decide what agentk applies
        # with its own permissions.
        api.kubernetes.own_namespace.keep_records(self._inventories)
        self._wanted: dict[str, ManifestProject] = {}
        self._running: dict[str, tuple[ManifestProject, Deferred[Any]]] = {}
        #: Active projects, by id.
        self.projects: dict[str, Project] = {}
        self._receivers: dict[ReceiverSettings, tuple[Receiver, Deferred[Any]]] = {}
        self._wanted_receivers: tuple[ReceiverSettings, ...] = ()
        self._metrics = GitopsMetrics(self.projects, time.time)
        self._counting = False
        self._reports = DriftReports(
            api.calls.client(REPORTS),
            api.kubernetes.as_agentk(),
            api.clock,
            api.random,
            time.time,
        )
        reports = api.calls.client(REPORTS)
        self._failing = FailingReports(reports, self.projects, api.clock)
        self._pruned = PruneReports(reports, api.clock, api.random)
        self._leftovers = Leftovers(
            api.kubernetes.as_agentk(),
            self.projects,
            api.clock,
            self._inventories or api.kubernetes.own_namespace.name,
            lambda: self._writer.mark,
            self._inventory,
            lambda one: self._writer.wrote(one, api.kubernetes.own_namespace.name),
            lambda: self._scope,
        )
        self._writes = Writes(api.clock.seconds)
        api.events.subscribe(KubernetesWrite, self._writes.add)
        path = options.audit_log
        self._audit_log = (
            None if path is None else KubernetesAuditLog(path, api.clock, time.time)
        )
        self._watches = KindWatches(api.kubernetes, api.clock, api.random)
        #: Id of the project that uses an inventory, by the id of the inventory.
        self._claims: dict[str, str] = {}
        self._leading = False
        self._scope = AgentScope()
        api.sections.follow(SCOPE, AgentScope, self._limit)
        api.sections.follow("gitops", GitopsSection, self._configured)
        api.leadership.lead(self._lead)
        receiving = self._receivers.values()
        #: Reasons why the configuration in Git is not in effect; empty if the
        #: configuration is in effect.
        self._refused: tuple[str, ...] = ()
        api.events.subscribe(ConfigurationRefused, self._refused_as)
        control = Control(
            self.projects,
            lambda: [one for one, _ in receiving],
            lambda: self._refused,
            api.clock.seconds,
            lambda one: [*one.status.notices, *self._leftovers.of(one)],
        )
        api.calls.handle_as_leader(CONTROL, control)

    async def start(self) -> None:
        """Register metrics; projects start when this agentk leads."""
        remove_leftovers()
        self._api.metrics.register(self._metrics)
        self._counting = True

    async def stop(self) -> None:
        """Unregister metrics; projects are cancelled when the leadership ends."""
        if self._counting:
            self._counting = False
            self._api.metrics.unregister(self._metrics)

    def _refused_as(self, event: ConfigurationRefused) -> None:
        self._refused = event.problems
        for project in tuple(self.projects.values()):
            project.others_changed()

    def _limit(self, scope: AgentScope) -> None:
        if scope == self._scope:
            return
        self._scope = scope
        self._watches.limit(scope)
        for project in tuple(self.projects.values()):
            project.passes.interrupt()

    def _configured(self, section: GitopsSection) -> None:
        self._wanted = {one.label: one for one in section.manifest_projects}
        self._wanted_receivers = section.receivers
        if self._leading:
            self._update()

    async def _lead(self) -> None:
        self._leading = True
        self._update()
        try:
            await in_parallel(
                partial(self._restarting, what, run)
                for what, run in (
                    ("reports of drift", self._reports.run),
                    ("reports of failing projects", self._failing.run),
                    ("reports of prunes", self._pruned.run),
                    ("search for leftovers", self._leftovers.run),
                )
            )
        finally:
            self._leading = False
            self._receive(())
            for project_id in tuple(self._running):
                self._end(project_id)

    def _update(self) -> None:
        """Start and stop projects and receivers according to the configuration."""
        for project_id, (settings, _) in tuple(self._running.items()):
            if self._wanted.get(project_id) != settings:
                self._end(project_id)
        for project_id, settings in self._wanted.items():
            if project_id not in self._running:
                running = Deferred.fromCoroutine(self._run(settings))
                running.addErrback(lambda failure: failure.trap(CancelledError))
                self._running[project_id] = (settings, running)
        self._receive(self._wanted_receivers)
        self._leftovers.changed()

    @property
    def _writer(self) -> InventoryWriter:
        """Return this agentk as a writer of inventories."""
        return InventoryWriter.of(self._api, time.time)

    def _inventory(self, inventory_id: str) -> InventoryStore:
        """Return the `InventoryStore` of an inventory, even if no project uses it."""
        client, own = (
            self._api.kubernetes.for_records(),
            self._api.kubernetes.own_namespace.name,
        )
        return InventoryStore(
            client,
            inventory_id,
            self._inventories or own,
            writer=self._writer,
            orders=OrderStore(client, inventory_id, own),
            clock=self._api.clock,
        )

    def _receive(self, wanted: Collection[ReceiverSettings]) -> None:
        """
        Start and stop receivers so that exactly the *wanted* receivers are notified of
        commits.
        """
        for settings, (_, running) in tuple(self._receivers.items()):
            if settings not in wanted:
                del self._receivers[settings]
                running.cancel()
        service = self._api.calls.client(GITOPS)
        for settings in wanted:
            if settings not in self._receivers:
                receiver = Receiver(
                    settings,
                    self._api,
                    service,
                    self._api.random,
                    time.time,
                    lambda: self._scope,
                )
                running = Deferred.fromCoroutine(receiver.run())
                running.addErrback(self._receiver_failed)
                self._receivers[settings] = (receiver, running)

    def _receiver_failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("notifying objects of commits failed", failure)

    def _end(self, project_id: str) -> None:
        _, running = self._running.pop(project_id)
        running.cancel()
        self.projects.pop(project_id, None)
        for name, holder in tuple(self._claims.items()):
            if holder == project_id:
                del self._claims[name]

    def _claimed(self, project_id: str, name: str) -> bool:
        """
        Return whether a project may use an inventory.

        Two projects with one inventory would each prune the objects of the other.
        """
        return self._claims.setdefault(name, project_id) == project_id

    def _context(self) -> ProjectContext:
        return ProjectContext(
            api=self._api,
            service=self._api.calls.client(GITOPS),
            random=self._api.random,
            now=time.time,
            programs=Programs(self._renderer, self._decryptor),
            preview_programs=Programs(self._preview_renderer, self._preview_decryptor),
            scope=lambda: self._scope,
            inventories=self._inventories,
            watches=self._watches,
            writes=self._writes,
            audit_log=self._audit_log,
            drifted=self._reports.add,
            pruned=self._pruned.add,
        )

    async def _run(self, settings: ManifestProject) -> None:
        async def run() -> None:
            project = self.projects[settings.label] = Project(
                self._context(),
                settings,
                partial(self._claimed, settings.label),
                Dependencies(self.projects),
                ProjectHandover(settings.label, self.projects, lambda: self._refused),
            )
            await project.run()

        await self._restarting(f"project {settings.label}", run)

    async def _restarting(
        self, what: str, run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """
        Run a part of the module until cancelled; restart it after a failure, because it
        must not stop the others.
        """
        while True:
            try:
                await run()
            except CancelledError:
                raise
            except Exception:
                self._log.failure("{what} failed; it restarts in a minute", what=what)
            await deferLater(self._api.clock, PAUSE)
