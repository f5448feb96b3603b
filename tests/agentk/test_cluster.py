"""Credentials for the API server, and that they stay fresh."""

from __future__ import annotations

import base64
import json
import os
import ssl
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from agentk import exec_credential
from agentk.cluster import (
    CHECK_INTERVAL,
    MIN_REFRESH,
    RETRY_FIRST,
    ClusterAccess,
    find_cluster,
)
from agentk.exec_credential import MAX_OUTPUT, PluginFailed, run_plugin
from agentk.kubeconfig import ExecPlugin, Target
from tunnel.errors import ConfigurationError
from tunnel.interfaces import ICluster

V1 = "client.authentication.k8s.io/v1"
NOW = 1_800_000_000.0
PLAIN = Target(origin="here", tls=False, host="h", port=80, authority="h:80")
TLS = attrs.evolve(PLAIN, tls=True)


def credential(**status: object) -> bytes:
    return json.dumps(
        {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    ).encode()


def certificate(name: str) -> tuple[bytes, bytes]:
    """A self-signed certificate, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        made.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


class Process:
    """A process that never was: the test says what it prints."""

    def __init__(
        self, protocol: Any, arguments: list[str], env: dict[str, str]
    ) -> None:
        self.protocol = protocol
        self.arguments = arguments
        self.env = env
        self.signals: list[str] = []
        self.closed = False
        protocol.transport = self

    def signalProcess(self, name: str) -> None:
        self.signals.append(name)

    def loseConnection(self) -> None:
        self.closed = True

    def prints(self, output: bytes) -> None:
        self.protocol.outReceived(output)
        self.protocol.processEnded(Failure(ProcessDone(0)))

    def fails(self, complaint: bytes) -> None:
        self.protocol.errReceived(complaint)
        self.protocol.processEnded(Failure(ProcessTerminated(1)))


class Reactor(Clock):
    """Time that the test moves, and processes that it plays."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []

    def spawnProcess(
        self,
        protocol: Any,
        program: str,
        args: list[str],
        env: dict[str, str],
        childFDs: dict[int, Any],
    ) -> None:
        assert os.fstat(childFDs[0])
        self.processes.append(Process(protocol, args, env))


class World:
    """A plugin's cluster in a reactor of ours."""

    def __init__(self, **plugin: Any) -> None:
        self.reactor = Reactor()
        self.target = attrs.evolve(
            PLAIN,
            plugin=ExecPlugin(
                **{"api_version": V1, "command": sys.executable, **plugin}
            ),
            plugin_folder=Path("/"),
        )
        self.access = ClusterAccess(
            self.target, self.reactor, lambda: NOW + self.reactor.seconds(), {"A": "b"}
        )

    @property
    def process(self) -> Process:
        return self.reactor.processes[-1]

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.access.start())

    def started(self, **status: object) -> None:
        done = self.start()
        self.process.prints(credential(**status))
        assert done.called

    def token(self) -> bytes | None:
        return self.access.authorization()


def later(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat()


def failed(done: Deferred[Any]) -> str:
    caught: list[Failure] = []
    done.addErrback(caught.append)
    caught[0].trap(PluginFailed)
    return caught[0].getErrorMessage()


class TestStatic:
    """Credentials that stand in the kubeconfig."""

    def access(self, target: Target) -> ClusterAccess:
        return ClusterAccess(target, Clock(), lambda: NOW, {})

    def test_provides_what_it_says(self) -> None:
        access = self.access(attrs.evolve(TLS, path_prefix="/x"))
        verifyObject(ICluster, access)
        assert (access.host, access.port, access.path_prefix) == ("h", 80, "/x")
        assert access.host_header == b"h:80"

    def test_authorization(self) -> None:
        assert self.access(PLAIN).authorization() is None
        token = self.access(attrs.evolve(PLAIN, token="abc"))
        assert token.authorization() == b"Bearer abc"
        basic = self.access(attrs.evolve(PLAIN, username="u", password="p:é"))
        expected = base64.b64encode("u:p:é".encode())
        assert basic.authorization() == b"Basic " + expected

    def test_plain_http_has_no_context(self) -> None:
        assert self.access(PLAIN).tls_context() is None

    def test_context(self) -> None:
        pem, key = certificate("a")
        access = self.access(
            attrs.evolve(TLS, ca_data=pem, cert_data=pem, key_data=key)
        )
        context = access.tls_context()
        assert context is not None
        assert context.verify_mode is ssl.CERT_REQUIRED
        # of the given authority only: the system's would open a back door
        assert len(context.get_ca_certs()) == 1
        assert access.tls_context() is context
        assert access.tls_server_name() == "h"

    def test_server_name(self) -> None:
        access = self.access(attrs.evolve(TLS, tls_server_name="kubernetes"))
        assert access.tls_server_name() == "kubernetes"

    def test_insecure(self) -> None:
        context = self.access(attrs.evolve(TLS, insecure=True)).tls_context()
        assert context is not None
        assert context.verify_mode is ssl.CERT_NONE

    def test_no_key_is_left_behind(self) -> None:
        pem, key = certificate("a")
        before = set(os.listdir("/proc/self/fd"))
        self.access(attrs.evolve(TLS, cert_data=pem, key_data=key))
        assert set(os.listdir("/proc/self/fd")) == before

    def test_what_is_no_certificate(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^here: "):
            self.access(attrs.evolve(TLS, ca_data=b"nonsense"))

    def test_renewed_authority(self, tmp_path: Path) -> None:
        file = tmp_path / "ca.crt"
        file.write_bytes(certificate("a")[0])
        access = self.access(attrs.evolve(TLS, ca_file=file))
        first = access.tls_context()
        file.write_bytes(b"half")
        logged = EventLoggingObserver()
        globalLogPublisher.addObserver(logged)
        try:
            assert access.tls_context() is first
            assert access.tls_context() is first
        finally:
            globalLogPublisher.removeObserver(logged)
        assert len(logged) == 1
        pem = certificate("b")[0]
        file.write_bytes(pem + b"\n")
        second = access.tls_context()
        assert second is not None
        assert second is not first


class TestTokenFile:
    """A token that the kubelet replaces."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "token"
        path.write_text("one\n")
        return path

    def test_read_again_when_it_changed(self, file: Path) -> None:
        clock = Clock()
        access = ClusterAccess(
            attrs.evolve(PLAIN, token_file=file), clock, lambda: NOW, {}
        )
        assert access.authorization() == b"Bearer one"
        file.write_text("second")
        clock.advance(CHECK_INTERVAL - 1)
        assert access.authorization() == b"Bearer one"
        clock.advance(1)
        assert access.authorization() == b"Bearer second"

    def test_at_once_after_a_refusal(self, file: Path) -> None:
        access = ClusterAccess(
            attrs.evolve(PLAIN, token_file=file), Clock(), lambda: NOW, {}
        )
        file.write_text("second")
        access.rejected()
        assert access.authorization() == b"Bearer second"

    @pytest.mark.parametrize("text", ["", "a b", "a\nb", "é", "x" * 70_000, None])
    def test_not_a_token(self, file: Path, text: str | None) -> None:
        clock = Clock()
        target = attrs.evolve(PLAIN, token_file=file)
        access = ClusterAccess(target, clock, lambda: NOW, {})
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        for _ in range(3):
            clock.advance(CHECK_INTERVAL)
            assert access.authorization() == b"Bearer one"
        with pytest.raises(ConfigurationError, match="token"):
            ClusterAccess(target, clock, lambda: NOW, {})


class TestPlugin:
    """When a plugin runs, and what it is told."""

    def test_what_it_is_told(self) -> None:
        world = World(args=("--cluster", "c"), provide_cluster_info=True)
        world.start()
        assert world.process.arguments[1:] == ["--cluster", "c"]
        assert world.process.env["A"] == "b"
        assert json.loads(world.process.env["KUBERNETES_EXEC_INFO"]) == {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": "http://h:80"}},
        }

    def test_not_run_before_the_start(self) -> None:
        assert World().reactor.processes == []

    def test_what_is_written_down_goes_first(self) -> None:
        world = World()
        target = attrs.evolve(world.target, token="abc")
        access = ClusterAccess(target, world.reactor, lambda: NOW, {})
        Deferred.fromCoroutine(access.start())
        assert world.reactor.processes == []
        assert access.authorization() == b"Bearer abc"

    def test_without_expiry_it_runs_once(self) -> None:
        world = World()
        world.started(token="one")
        assert world.token() == b"Bearer one"
        assert world.reactor.getDelayedCalls() == []

    def test_refreshed_before_it_expires(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(1000))
        world.reactor.advance(799)
        assert len(world.reactor.processes) == 1
        world.reactor.advance(1)
        assert len(world.reactor.processes) == 2
        assert world.token() == b"Bearer one"
        world.process.prints(
            credential(token="two", expirationTimestamp=later(800 + 1000))
        )
        assert world.token() == b"Bearer two"
        world.reactor.advance(800)
        assert len(world.reactor.processes) == 3

    def test_a_token_that_has_expired_already_is_no_loop(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(-5))
        world.reactor.advance(MIN_REFRESH - 1)
        assert len(world.reactor.processes) == 1
        world.reactor.advance(1)
        assert len(world.reactor.processes) == 2

    def test_a_failed_refresh_keeps_the_old_and_tries_again(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(100))
        world.reactor.advance(80)
        world.process.fails(b"no network\n")
        assert world.token() == b"Bearer one"
        for delay in (RETRY_FIRST, 2 * RETRY_FIRST, 4 * RETRY_FIRST):
            count = len(world.reactor.processes)
            world.reactor.advance(delay - 0.1)
            assert len(world.reactor.processes) == count
            world.reactor.advance(0.1)
            assert len(world.reactor.processes) == count + 1
            world.process.fails(b"no network\n")

    def test_refused_by_the_api_server(self) -> None:
        world = World()
        world.started(token="one")
        world.reactor.advance(3600)
        for _ in range(5):
            world.access.rejected()
        world.reactor.advance(0)
        assert len(world.reactor.processes) == 2
        world.access.rejected()
        world.process.prints(credential(token="two"))
        # not at once again, however often it is refused
        for _ in range(5):
            world.access.rejected()
            world.reactor.advance(1)
        assert len(world.reactor.processes) == 2
        world.reactor.advance(MIN_REFRESH)
        assert len(world.reactor.processes) == 3

    def test_stopped(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(100))
        world.access.stop()
        assert world.reactor.getDelayedCalls() == []

    def test_stopped_while_it_runs(self) -> None:
        world = World()
        world.started(token="one", expirationTimestamp=later(100))
        world.reactor.advance(80)
        world.access.stop()
        assert world.process.signals == ["KILL"]
        world.process.protocol.processEnded(Failure(ProcessTerminated(signal=9)))
        assert world.reactor.getDelayedCalls() == []

    def test_certificate(self) -> None:
        pem, key = certificate("a")
        world = World()
        target = attrs.evolve(world.target, tls=True, ca_data=pem)
        access = ClusterAccess(target, world.reactor, lambda: NOW, {})
        done = Deferred.fromCoroutine(access.start())
        status = {
            "clientCertificateData": pem.decode(),
            "clientKeyData": key.decode(),
        }
        world.process.prints(credential(**status))
        assert done.called
        first = access.tls_context()
        assert access.tls_context() is first
        assert access.authorization() is None
        access.rejected()
        world.reactor.advance(MIN_REFRESH)
        pem2, key2 = certificate("b")
        status = {
            "clientCertificateData": pem2.decode(),
            "clientKeyData": key2.decode(),
        }
        world.process.prints(credential(**status))
        assert access.tls_context() is not first

    @pytest.mark.parametrize(
        ("play", "says"),
        [
            (lambda p: p.prints(b"nonsense"), "printed no JSON"),
            (lambda p: p.prints(b"[" * 100_000), "printed no JSON"),
            (lambda p: p.prints(b"{}"), "something else than an ExecCredential"),
            (lambda p: p.prints(credential()), "neither token nor"),
            (lambda p: p.prints(credential(token=5)), "of the wrong types"),
            (lambda p: p.prints(credential(token="a\r\nb")), "special characters"),
            (
                lambda p: p.prints(credential(clientCertificateData="x")),
                "only one of",
            ),
            (
                lambda p: p.prints(credential(token="x", expirationTimestamp="soon")),
                "is no time",
            ),
            (
                lambda p: p.prints(credential(token="x").replace(b"/v1", b"/v2")),
                "another apiVersion",
            ),
            (lambda p: p.fails(b"please log in\n"), "failed: please log in"),
            (lambda p: p.protocol.outReceived(b"x" * (MAX_OUTPUT + 1)), "more than"),
        ],
    )
    def test_what_is_no_credential(
        self, play: Callable[[Process], None], says: str
    ) -> None:
        world = World(install_hint="see https://example.org")
        done = world.start()
        play(world.process)
        said = failed(done)
        assert says in said
        assert said.startswith("here: the credential plugin ")
        assert said.endswith("; see https://example.org")
        assert world.reactor.getDelayedCalls() == []

    def test_too_slow(self) -> None:
        world = World()
        done = world.start()
        world.reactor.advance(exec_credential.TIMEOUT)
        assert world.process.signals == ["KILL"]
        # a grandchild may hold the pipe: nothing waits for its end
        assert world.process.closed
        assert "took longer than 60 s" in failed(done)

    def test_long_complaints_are_cut(self) -> None:
        world = World()
        done = world.start()
        world.process.fails(b"x" * 100_000 + b"the reason")
        said = failed(done)
        assert len(said) < 1500
        assert said.endswith("the reason")

    def test_not_installed(self) -> None:
        world = World(command="no-such-plugin", install_hint="install it")
        assert "not on the PATH of agentk; install it" in failed(world.start())


class TestRealProcess:
    """The same with processes that are."""

    def target(self, tmp_path: Path, script: str) -> Target:
        plugin = tmp_path / "plugin"
        plugin.write_text(f"#!{sys.executable}\n{script}")
        plugin.chmod(stat.S_IRWXU)
        return attrs.evolve(
            PLAIN,
            plugin=ExecPlugin(api_version=V1, command="./plugin", args=("a",)),
            plugin_folder=tmp_path,
        )

    @pytest_twisted.ensureDeferred
    async def test_prints_a_token(self, tmp_path: Path) -> None:
        from twisted.internet import reactor

        script = (
            "import sys, os, json\n"
            "assert sys.stdin.read() == ''\n"
            "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
            "info['status'] = {'token': sys.argv[1] + os.environ['X']}\n"
            "json.dump(info, sys.stdout)\n"
        )
        target = self.target(tmp_path, script)
        got = await run_plugin(reactor, target, {**os.environ, "X": "z"})
        assert got.token == "az"

    @pytest_twisted.ensureDeferred
    async def test_fails(self, tmp_path: Path) -> None:
        from twisted.internet import reactor

        target = self.target(tmp_path, "import sys\nsys.exit('log in first')")
        with pytest.raises(PluginFailed, match="failed: log in first"):
            await run_plugin(reactor, target, os.environ)


def test_find_cluster(tmp_path: Path) -> None:
    for name, data in (("token", b"t"), ("ca.crt", certificate("a")[0])):
        (tmp_path / name).write_bytes(data)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    access = find_cluster(
        Clock(), lambda: NOW, None, None, environ, service_account=tmp_path
    )
    assert access.authorization() == b"Bearer t"
    assert access.tls_server_name() == "10.0.0.1"


def test_nothing_heavy_is_imported() -> None:
    """agentk has to stay small."""
    import subprocess

    code = (
        "import sys, agentk.cluster, agentk.config\n"
        "heavy = {'kubernetes', 'klein', 'treq', 'twisted.internet.reactor'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
