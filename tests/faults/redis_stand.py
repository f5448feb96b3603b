"""Three kas around one Redis, with many light agents and plain HTTP for users."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import attrs
import yaml

from kas.identity.file import FILE_NAME, Agent, Identities, dump
from kas.identity.store import AGENT_PREFIX, IdentityStore
from kas.state import pki
from kas.state.directory import StateDirectory
from tests.faults.stand import Fleet, FleetKas
from tests.integration.processes import eventually
from tests.integration.redisserver import RedisServer
from tests.integration.stack import fetch, metric
from tools.load.clients import Agents, Load

_TICK = os.sysconf("SC_CLK_TCK")


@attrs.define(eq=False)
class PlainKas(FleetKas):
    """Users come without TLS, so that what is measured is not the client."""

    @property
    def configuration(self) -> Path:
        """As for any kas, and with room for the crowds of the experiments."""
        path = super().configuration
        content = yaml.safe_load(path.read_text())
        proxy = content["agent"]["kubernetes_api"]
        proxy["listen"]["development_certificate"] = False
        proxy["max_requests_per_agent"] = 20_000
        proxy["max_requests_per_credential"] = 20_000
        path.write_text(yaml.safe_dump(content))
        return path

    def metrics(self) -> Mapping[str, float]:
        """All of its metrics, by their name with labels."""
        code, body = fetch(self.observability, "/metrics")
        assert code == 200, body
        lines = (line.rpartition(" ") for line in body.decode().splitlines())
        return {name: float(value) for name, _, value in lines if name[:1] != "#"}

    def value(self, name: str) -> float:
        """One metric, over all labels."""
        return metric(self.observability, name)

    def cpu(self) -> float:
        """Seconds of processor time that it used so far."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def lines(self) -> int:
        """Lines of its log, but for those of the access log."""
        assert self.process is not None
        lines = self.process.said().splitlines()
        return sum('"GET /' not in line for line in lines)

    def resident(self) -> int:
        """Bytes of memory."""
        assert self.process is not None
        return self.process.resident()

    def runs(self) -> bool:
        """It did not end."""
        return self.process is not None and self.process.child.poll() is None


class Stand(Fleet):
    """
    A context manager that ends everything.

    :param count: agents that exist; none of them is connected.
    :param reserved: the first of them, which no experiment has for itself.
    :ivar tokens: of each of them, in order.
    """

    def __init__(self, folder: Path, count: int, reserved: int = 0) -> None:
        super().__init__(folder)
        self._unused = reserved + 1
        self.kas: list[PlainKas] = [  # type: ignore[assignment]
            PlainKas(**attrs.asdict(one, recurse=False)) for one in self.kas
        ]
        self._later = ThreadPoolExecutor(4)
        state = StateDirectory.open(self.kas[0].state)
        self.authority = pki.ensure(state, time.time, "localhost").ca_file
        store = IdentityStore(state, lambda: datetime.now(UTC))
        agents = []
        self.tokens: list[str] = []
        for number in range(1, count + 1):
            token, text = store._mint(AGENT_PREFIX, None)
            self.tokens.append(text)
            agents.append(
                Agent(str(number), f"agent-{number}", token.created_at, (token,))
            )
        content = Identities(agents=tuple(agents), next_agent_id=count + 1)
        state.write(FILE_NAME, dump(content))
        _, self.user = store.add_user("user", ["*"], None)

    def __enter__(self) -> Stand:
        try:
            self.start()
            self.know_each_other()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._later.shutdown()

    def unused(self, count: int = 1) -> int:
        """The first of *count* agents, in a row, of which no kas ever heard."""
        first, self._unused = self._unused, self._unused + count
        assert self._unused - 1 <= len(self.tokens)
        return first

    def agents(self) -> Agents:
        """For agents of this stand; none is connected yet."""
        return Agents(str(self.authority), [kas.agents for kas in self.kas])

    def paths(self, begin: int, end: int) -> list[str]:
        """A target for each of the agents *begin* to *end*, counted from one."""
        return [f"/agents/agent-{number}/version" for number in range(begin, end + 1)]

    def load(self, paths: list[str], rate: float, *kas: PlainKas) -> Load:
        """Requests through these kas, or all."""
        ports = [one.proxy for one in kas or self.kas]
        return Load("get", ports, paths, self.user, begin=False, rate=rate)

    def get(self, kas: PlainKas, number: int) -> int:
        """The status of one request for an agent."""
        return self.timed_get(kas, number)[0]

    def timed_get(self, kas: PlainKas, number: int) -> tuple[int, float]:
        """The same, and how many seconds it took."""
        import http.client

        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", kas.proxy, timeout=40)
        try:
            connection.request(
                "GET",
                self.paths(number, number)[0],
                headers={"Authorization": f"Bearer {self.user}"},
            )
            answer = connection.getresponse()
            answer.read()
            return answer.status, time.monotonic() - began
        finally:
            connection.close()

    def later_get(self, kas: PlainKas, number: int) -> Future[tuple[int, float]]:
        """The same in the background."""
        return self._later.submit(self.timed_get, kas, number)

    def up(self) -> bool:
        """Every kas has Redis, and hears its news."""
        return all(
            kas.value("kas_redis_up") and kas.value("kas_redis_listening")
            for kas in self.kas
        )

    def known(self) -> int:
        """Agents that Redis knows."""
        return len(self.redis("KEYS", "gitlab-kas:txkas1:agent:*"))

    def until_up(self, seconds: float) -> float:
        """Seconds until `up`."""
        began = time.monotonic()
        eventually(self.up, seconds, "all kas have Redis again", pause=0.1)
        return time.monotonic() - began

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Nobody ends or starts anew in between."""
        pids = [kas.process.pid for kas in self.kas if kas.process is not None]
        yield
        assert all(kas.runs() for kas in self.kas)
        assert pids == [kas.process.pid for kas in self.kas if kas.process is not None]


def commands(redis: RedisServer) -> dict[str, int]:
    """How often each command was done so far, those within transactions too."""
    text: str = redis("INFO", "commandstats").decode()
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name.startswith("cmdstat_"):
            calls = rest.partition(",")[0].partition("=")[2]
            found[name.removeprefix("cmdstat_")] = int(calls)
    return found


def since(redis: RedisServer, before: Mapping[str, int]) -> dict[str, int]:
    """What was done since then, without our own questions."""
    return {
        name: count - before.get(name, 0)
        for name, count in commands(redis).items()
        if count != before.get(name, 0) and name not in ("info", "keys")
    }
