"""Both halves of the module, with an agent, two repositories and one cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.iweb import IAgent

from modules.gitops.agent.apply import backups
from modules.gitops.agent.module import GitopsAgent
from modules.gitops.agent.source import threads
from modules.gitops.server.module import GitopsServer
from tunnel.api import (
    GitAddress,
    GitPushed,
    RepositorySettings,
)
from tunnel.api.followed_refs import MIN_PAUSE
from tunnel.kubernetes import RequestGuard
from tunnel.testing import FakeCluster, ModulePair

URL = "https://git.example.org/apps.git"
OTHER = "https://git.example.org/other.git"


def text(*objects: Any) -> str:
    return "\n---\n".join(json.dumps(one) for one in objects)


class HalvesTestCase(SynchronousTestCase):
    """One agent, two repositories, one cluster."""

    #: Of kas' half, besides the repositories.
    settings: Mapping[str, Any] = MappingProxyType({})
    #: Answers what kas asks of other servers.
    http: IAgent | None = None
    #: The policy of the cluster's owner.
    guard: RequestGuard | None = None

    def setUp(self) -> None:
        for module in (backups, threads):
            self.patch(module, "deferToThread", maybeDeferred)
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)
        self.pair = ModulePair(
            self.clock,
            cluster=self.cluster,
            http=self.http,
            guard=self.guard,
            random=lambda: 1.0,
        )
        self.apps = self.pair.repositories.open(GitAddress(url=URL))
        self.other = self.pair.repositories.open(GitAddress(url=OTHER))
        repositories = {
            "apps": RepositorySettings(url=URL),
            "other": RepositorySettings(url=OTHER),
            # One repository under two names, as two projects of it.
            "twin": RepositorySettings(url=URL),
        }
        self.server = self.pair.server_half(
            GitopsServer, repositories=repositories, **self.settings
        )
        self.agent = self.pair.agent_half(GitopsAgent)
        self.log = EventLoggingObserver()
        globalLogPublisher.addObserver(self.log)
        self.addCleanup(globalLogPublisher.removeObserver, self.log)
        self.pair.start()
        self.addCleanup(self.pair.stop)
        self.lead()
        self.addCleanup(self.leave)

    def lead(self) -> None:
        """This agentk leads from now on."""
        api = self.agent._api
        api.leadership.leads = True
        (run,) = api.leadership.led
        self.leading = Deferred.fromCoroutine(run())
        self.leading.addErrback(lambda failure: failure.trap(CancelledError))

    def leave(self) -> None:
        """... and no longer."""
        self.agent._api.leadership.leads = False
        self.leading.cancel()

    def configure(self, *projects: dict[str, Any]) -> None:
        section = json.dumps({"manifest_projects": list(projects)})
        self.pair.sections.apply({"gitops": section})
        self.passes(1)

    def passes(self, seconds: float) -> None:
        for _ in range(int(seconds // 5)):
            self.clock.advance(5)
            self.pair.settle()
        for _ in range(5):
            self.clock.advance(seconds % 5 / 5)
            self.pair.settle()

    def pushed(self, name: str = "apps") -> None:
        self.server._api.events.publish(GitPushed(name))
        self.passes(MIN_PAUSE)
        self.passes(MIN_PAUSE)

    def live(self, name: str, namespace: str = "default") -> Any:
        return self.cluster.objects.find("v1", "ConfigMap", name, namespace)

    def said(self, part: str) -> list[str]:
        lines = [formatEvent(event) for event in self.log]
        return [line for line in lines if part in line]
