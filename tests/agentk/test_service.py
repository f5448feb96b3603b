"""One agentk as a whole, on a reactor in memory."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, NoReturn

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError, ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from agentk.config import (
    AgentkConfiguration,
    KubernetesConfiguration,
    TokenSource,
    read_options,
)
from agentk.kubernetes.kubeconfig import IN_CLUSTER, Target
from agentk.service import STOP_GRACE, AgentkService
from tests.kas.world import World
from tunnel import __version__
from tunnel.api import IAgentModule
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import Prepared
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program import sdnotify
from tunnel.testing import Pipe, RecordingReceiver


class Reactor(MemoryReactorClock):
    """Its ports can be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[int] = []
        self.taken: set[int] = set()

    def listenTCP(self, port: int, *rest: Any, **more: Any) -> Any:
        if port in self.taken:
            in_use = OSError(errno.EADDRINUSE, "in use")
            raise CannotListenError("127.0.0.1", port, in_use)
        listening = super().listenTCP(port, *rest, **more)
        self.open.append(port)
        listening.stopListening = lambda: self.open.remove(port)
        return listening


class Cluster:
    """Stands for the API server; notes when its credentials are kept fresh."""

    target = Target(
        origin="tests",
        tls=True,
        host="api",
        port=443,
        authority="api",
        namespace="of-the-pod",
    )

    def __init__(self, happened: list[str]) -> None:
        self.happened = happened
        self.problem: Exception | None = None

    def endpoint(self) -> NoReturn:
        raise AssertionError("nothing here asks the API server")

    async def start(self) -> None:
        self.happened.append("start cluster")
        if self.problem is not None:
            raise self.problem

    def stop(self) -> None:
        self.happened.append("stop cluster")


@implementer(IAgentModule)
class Module:
    """Notes what happens to it."""

    happened: list[str]
    received: RecordingReceiver
    problem: Exception | None

    def __init__(self, api: Any) -> None:
        self.name = api.name
        api.calls.handle_stream("/x", lambda stream, open_: self.received)

    async def start(self) -> None:
        self.happened.append("start module")
        if self.problem is not None:
            raise self.problem

    async def stop(self) -> None:
        self.happened.append("stop module")


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = Reactor()
        self.happened: list[str] = []
        Module.happened = self.happened
        Module.problem = None
        Module.received = RecordingReceiver()
        self.cluster = Cluster(self.happened)
        self.patch(sdnotify, "notify", self.happened.append)
        self.patch(sdnotify, "watchdog_interval", lambda: 10.0)
        self.world = World(clock=self.reactor)

    def service(
        self,
        namespace: str = "ns",
        addresses: Sequence[str] = ("unix:/run/kas.sock",),
        configuration: AgentkConfiguration | None = None,
    ) -> AgentkService:
        flags = {
            "kas-address": list(addresses),
            "observability-listen-address": "127.0.0.1:8080",
        }
        environ = {"POD_NAME": "pod-1", "POD_NAMESPACE": namespace}
        cluster: Any = self.cluster
        return AgentkService(
            read_options(flags, environ),
            configuration or AgentkConfiguration(),
            TokenSource(None, b"7"),
            cluster,
            [Prepared("module", Module, None)],
            self.reactor,
            environ=environ,
        )

    def connect(self) -> Pipe:
        """Let the connection come about that it asked for."""
        ((path, factory, *_),) = self.reactor.unixClients
        self.assertEqual(path, "/run/kas.sock")
        ours, theirs = factory.buildProtocol(None), self.world.factory
        pipe = Pipe(self.reactor, ours, theirs.buildProtocol(None))
        pipe.flush()
        return pipe


class StartTests(_Case):
    """From nothing to ready."""

    def test_order(self) -> None:
        """Probes first, then the cluster, the modules, and last the dial."""
        service = self.service()
        service.startService()
        self.assertEqual(self.reactor.open, [8080])
        self.assertEqual(self.happened, ["start cluster", "start module", "WATCHDOG=1"])
        self.assertEqual(len(self.reactor.unixClients), 1)
        self.reactor.advance(10)
        self.assertEqual(self.happened[-1], "WATCHDOG=1")

    def test_ready(self) -> None:
        """For systemd, too, ready means that bytes flow."""
        service = self.service()
        service.startService()
        self.assertNotIn("READY=1", self.happened)
        self.connect()
        self.assertEqual(self.happened[-1], "READY=1")
        self.assertTrue(service.dialer.ready)

    def test_own_namespace(self) -> None:
        """It is closed where agentk says that it runs, unless it may stay open."""
        own = self.service().own_namespace
        self.assertEqual((own.name, own.is_closed), ("ns", True))
        # The namespace of a kubeconfig's context may be anyone's, a pod's is agentk's.
        own = self.service(namespace="").own_namespace
        self.assertEqual((own.name, own.is_closed), ("of-the-pod", False))
        target = attrs.evolve(Cluster.target, origin=IN_CLUSTER)
        self.patch(Cluster, "target", target)
        own = self.service(namespace="").own_namespace
        self.assertEqual((own.name, own.is_closed), ("of-the-pod", True))
        self.patch(Cluster, "target", attrs.evolve(Cluster.target, namespace=""))
        own = self.service(namespace="").own_namespace
        self.assertEqual((own.name, own.is_closed), ("default", False))
        kubernetes = KubernetesConfiguration(allow_own_namespace=True)
        configuration = AgentkConfiguration(kubernetes=kubernetes)
        own = self.service(configuration=configuration).own_namespace
        own.keep_records()
        self.assertFalse(own.is_closed)

    def test_several_addresses(self) -> None:
        """Each attempt goes to the next address, and says which one it was."""
        addresses = ("unix:/run/one.sock", "unix:/run/two.sock")
        service = self.service(addresses=addresses)
        service.startService()
        for number in range(3):
            path, factory = self.reactor.unixClients[-1][:2]
            self.assertEqual(f"unix:{path}", addresses[number % 2])
            factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))
            self.assertIn(addresses[number % 2], service.dialer.last_problem)
            while len(self.reactor.unixClients) == number + 1:
                self.reactor.advance(0.5)
        self.assertEqual(len(self.reactor.unixClients), 4)

    def test_hello(self) -> None:
        """Kas learns which pod it is, and which version."""
        self.service().startService()
        self.connect()
        (connection,) = self.world.registry
        agent = connection.agent
        self.assertEqual(
            (
                agent.pod_name,
                agent.pod_namespace,
                agent.version,
                len(agent.instance_id),
            ),
            ("pod-1", "ns", __version__, 16),
        )

    def test_namespace_of_the_service_account(self) -> None:
        """Where nobody says which it is."""
        self.service(namespace="").startService()
        self.connect()
        (connection,) = self.world.registry
        self.assertEqual(connection.agent.pod_namespace, "of-the-pod")

    def assert_fails(self, reason: str) -> None:
        service = self.service()
        ended = self.assertRaises(SystemExit, service.startService)
        self.assertIn(reason, str(ended))
        self.assertEqual(self.reactor.unixClients, [])
        self.assertNotIn("READY=1", self.happened)

    def test_module_fails(self) -> None:
        """It is stopped again, kas is not dialled, and the reason is told."""
        Module.problem = ValueError("no such colour")
        self.assert_fails("module module did not start: no such colour")
        # What ran before it stops as well.
        self.assertEqual(self.happened[-2:], ["stop module", "stop cluster"])
        self.flushLoggedErrors(ValueError)

    def test_cluster_fails(self) -> None:
        """Without a credential for the cluster there is nothing to serve."""
        self.cluster.problem = ConfigurationError(["the plugin gave no credential"])
        self.assert_fails("the plugin gave no credential")
        self.assertNotIn("start module", self.happened)

    def test_address_is_taken(self) -> None:
        """The line says which, and what to do."""
        self.reactor.taken = {8080}
        self.assert_fails(
            "cannot listen for health and metrics: 127.0.0.1:8080 is in use (by "
            "another agentk?); choose another with --observability-listen-address"
        )
        self.assertNotIn("start cluster", self.happened)


class StopTests(_Case):
    """Offers nothing more, serves what it accepted, closes last."""

    def test_serves_first(self) -> None:
        """Modules go on until the last stream is done; probes close at the very end."""
        service = self.service()
        service.startService()
        pipe = self.connect()
        connection = self.world.router.only_path("7")
        assert connection is not None
        client = RecordingReceiver()
        stream = connection.tunnel.open_stream(pb.Open(method="/x"), client)
        pipe.flush()
        stopping = service.stopService()
        pipe.flush()
        self.assertIsNone(self.world.router.only_path("7"))
        self.reactor.advance(1)
        pipe.flush()
        self.assertNoResult(stopping)
        self.assertNotIn("stop module", self.happened)
        stream.write(b"last")
        pipe.flush()
        self.assertEqual(Module.received.data, b"last")
        self.assertEqual(self.reactor.open, [8080])
        stream.reset()
        pipe.flush()
        self.reactor.advance(1)
        pipe.flush()
        self.successResultOf(stopping)
        self.assertEqual(
            self.happened[-3:], ["STOPPING=1", "stop module", "stop cluster"]
        )
        self.assertEqual(self.reactor.open, [])

    def test_grace_is_over(self) -> None:
        """A stream that never ends does not keep the pod."""
        service = self.service()
        service.startService()
        pipe = self.connect()
        connection = self.world.router.only_path("7")
        assert connection is not None
        client = RecordingReceiver()
        connection.tunnel.open_stream(pb.Open(method="/x"), client)
        pipe.flush()
        stopping = service.stopService()
        for _ in range(int(STOP_GRACE) * 10 + 5):
            self.reactor.advance(0.1)
            pipe.flush()
        self.successResultOf(stopping)
        self.assertEqual(len(client.closed), 1)

    def test_never_connected(self) -> None:
        """The dial is given up, and everything is closed."""
        service = self.service()
        service.startService()
        stopping: Deferred[None] = service.stopService()
        self.successResultOf(stopping)
        self.assertEqual(self.reactor.open, [])
        self.reactor.advance(120)
        self.assertEqual(len(self.reactor.unixClients), 1)
