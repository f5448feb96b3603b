"""Several kas that share a Redis, a balancer before them, and agentk behind."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from tests.integration.processes import Process, eventually
from tests.integration.redisserver import RedisServer
from tests.integration.stack import Agentk, Kas
from tools.ports import free_port

_FLEET = """\
private_api:
  listen:
    address: 127.0.0.1:{private}
    development_certificate: true
    authentication_secret_file: {secret}
{mutual}redis:
  server: {{address: "{redis}"}}
  network: {network}
"""


@attrs.define(eq=False)
class FleetKas(Kas):
    """One kas of several: they share identities and the development CA."""

    number: int = 0
    shared: Path = Path()
    private: int = attrs.Factory(free_port)
    redis_address: str = ""
    more: str = ""
    #: Who has to have signed the certificates that kas show to each other.
    mutual: Path | None = None

    @property
    def state(self) -> Path:
        """The same for all of them, as on a volume."""
        return self.shared / "state"

    def prepare(self) -> None:
        """Write what its configuration needs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        secret = self.shared / "private-api-secret"
        if not secret.exists():
            secret.write_text(base64.b64encode(os.urandom(32)).decode())
        mutual = ""
        if self.mutual is not None:
            mutual = f"    client_ca_certificate_file: {self.mutual}\n"
        unix = self.redis_address.startswith("/")
        self.settings = self.more + _FLEET.format(
            private=self.private,
            secret=secret,
            mutual=mutual,
            redis=self.redis_address,
            network="unix" if unix else "tcp",
        )

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> Process:
        self.prepare()
        return super().start(*arguments, environment=environment)


class Fleet:
    """
    *count* kas around one Redis.

    :param more: settings for each of them, as YAML text.
    """

    def __init__(self, folder: Path, count: int = 3, more: str = "") -> None:
        self.folder = folder
        self.redis = RedisServer(folder)
        self.kas = [
            FleetKas(
                folder / f"kas-{number}",
                number=number,
                shared=folder,
                redis_address=f"127.0.0.1:{self.redis.port}",
                more=more,
            )
            for number in range(1, count + 1)
        ]
        self.agentks: list[Agentk] = []

    def start(self) -> None:
        """All kas, one after the other: the first makes the CA."""
        for kas in self.kas:
            kas.start()

    def agentk(
        self,
        token: Path,
        kubeconfig: Path | None,
        *,
        name: str = "agentk",
        at: FleetKas | None = None,
        address: str = "",
    ) -> Agentk:
        """One agentk, which is ready."""
        agentk = Agentk(at or self.kas[0], token, kubeconfig, name, address)
        agentk.start()
        self.agentks.append(agentk)
        return agentk

    def stop(self) -> None:
        """End everything, whatever state it is in."""
        for agentk in self.agentks:
            if agentk.process is not None:
                agentk.process.kill()
        for kas in self.kas:
            if kas.process is not None:
                kas.process.kill()
        self.redis.stop()

    def know_each_other(self) -> None:
        """Until each kas has heard of all others."""
        # It asks for them with its next lease, which is ten seconds later; or at once,
        # because it has Redis again.
        self.redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for kas in self.kas:
            eventually(
                lambda kas=kas: kas.status()["peers"] == len(self.kas) - 1,  # type: ignore[misc]
                what="peers are known",
            )
