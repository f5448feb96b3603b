"""Credentials for the API server, and the processes that print them."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from agentk.kubernetes.cluster import ClusterAccess
from agentk.kubernetes.exec_credential import PluginFailed
from agentk.kubernetes.kubeconfig import ExecPlugin, Target

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
