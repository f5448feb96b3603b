"""Both halves of ``webhooks`` in memory, a repository, and a receiver."""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from modules.webhooks.agent.module import WebhooksAgent
from modules.webhooks.agent.secrets import KEYS
from modules.webhooks.server.control_server import CONTROL
from modules.webhooks.server.module import WebhooksServer
from modules.webhooks.wire import webhooks_pb2 as wire
from tunnel.api import GitAddress, GitPushed, RepositorySettings
from tunnel.testing import FakeCluster, FakeService, ModulePair

URL = "https://git.example.org/group/apps.git"
ADDRESS = "10.96.0.10"
TARGET = {
    "name": "flux",
    "service": "flux-system/webhook-receiver:80",
    "path": "/hook/1234",
    "secret": "flux-system/webhook-token/token",
}
SECRET = b"the secret of the receiver"


def service(name: str = "webhook-receiver", address: str = ADDRESS) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "flux-system"},
        "spec": {
            "selector": {"app": "notification-controller"},
            "clusterIP": address,
            "ports": [{"port": 80}],
        },
    }


def secret(value: bytes = SECRET, annotation: str = "token") -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "webhook-token",
            "namespace": "flux-system",
            "annotations": {KEYS: annotation},
        },
        "data": {"token": base64.b64encode(value).decode()},
    }


class WebhookPair:
    """
    kas, agentk, a cluster with a receiver, and a repository.

    :ivar receiver: the server behind the Service.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        # Times since 1970 are those of the clock.
        self.clock.advance(1_800_000_000)
        self.cluster = FakeCluster(self.clock)
        self.objects = self.cluster.objects
        self.objects.put(service())
        self.objects.put(secret())
        self.receiver = self.cluster.services[ADDRESS, 80] = FakeService()
        self.store: Any = None
        self._leading: Deferred[Any] | None = None
        self.repositories: Any = None
        self._make()
        self.first = self.commit("1")

    def _make(self) -> None:
        self.pair = ModulePair(self.clock, cluster=self.cluster, random=lambda: 1.0)
        if self.store is not None:
            # The values outlive kas.
            self.pair.store._namespaces = self.store._namespaces
            self.pair.repositories._known = self.repositories._known
        self.store = self.pair.store
        self.repositories = self.pair.repositories
        self.repository = self.repositories.open(GitAddress(url=URL))
        self.server = self.pair.server_half(
            WebhooksServer,
            poll_period=3600.0,
            repositories={"apps": RepositorySettings(url=URL)},
        )
        self.server.now = self.clock.seconds
        self.agent = self.pair.agent_half(WebhooksAgent)
        self.agent.now = self.clock.seconds
        self.pair.start()

    def restart(self, *targets: dict[str, Any]) -> None:
        """Replace kas and agentk by new processes with the same store."""
        self.follow_no_longer()
        self.pair.stop()
        self._make()
        self.lead()
        self.configure(*targets)

    def stop(self) -> None:
        self.follow_no_longer()
        self.pair.stop()

    def lead(self) -> None:
        """Let agentk lead."""
        leadership = self.agent._api.leadership
        leadership.leads = True
        (run,) = leadership.led
        self._leading = Deferred.fromCoroutine(run())
        self._leading.addErrback(lambda failure: failure.trap(CancelledError))
        self.passes(0)

    def follow_no_longer(self) -> None:
        """End the leadership, as after the loss of the connection."""
        leading, self._leading = self._leading, None
        if leading is not None:
            self.agent._api.leadership.leads = False
            leading.cancel()
            self.passes(0)

    def configure(self, *targets: dict[str, Any]) -> None:
        """Put a configuration into effect."""
        section = json.dumps({"targets": [TARGET | one for one in targets]})
        self.pair.sections.apply({"webhooks": section})
        self.passes(1)

    def commit(self, text: str, ref: str = "HEAD") -> str:
        commit: str = self.repository.commit({"apps/a.yaml": text, "b": "1"}, ref)
        return commit

    def push(self, text: str, ref: str = "HEAD") -> str:
        """Push a commit, and tell kas."""
        commit = self.commit(text, ref)
        self.server._api.events.publish(GitPushed("apps"))
        self.passes(1)
        return commit

    def passes(self, seconds: float) -> None:
        """Let time pass in steps, so that everything due happens."""
        end = self.clock.seconds() + seconds
        for _ in range(5):
            self.pair.settle()
            self.clock.advance(0)
        while self.clock.seconds() < end:
            times = [one.getTime() for one in self.clock.getDelayedCalls()]
            upcoming = min([*times, end])
            self.clock.advance(max(0.0, min(upcoming, end) - self.clock.seconds()))
            self.pair.settle()
        for _ in range(5):
            self.pair.settle()
            self.clock.advance(0)

    @property
    def bodies(self) -> list[Any]:
        """The bodies that the receiver got."""
        return [json.loads(one.body) for one in self.receiver.requests]

    def announced(self) -> list[str]:
        """The commits that the receiver was notified of."""
        return [one["data"]["after"] for one in self.bodies]

    def ask(self, method: str, request: Any) -> Any:
        """Call kas as an operator."""
        return self.pair.run(self.pair.external(CONTROL).call(method, request))

    def listed(self, agent: str = "agent-1") -> list[wire.DeliveryState]:
        found = self.ask("ListDeliveries", wire.ListDeliveriesRequest(agent=agent))
        return list(found.deliveries)

    def resend(self, target: str = "flux", ref: str = "") -> None:
        request = wire.ResendRequest(agent="agent-1", target=target, ref=ref)
        self.ask("Resend", request)
        self.passes(1)


def refused(failure: Failure) -> Any:
    """The `CallError` in a failure."""
    return failure.value
