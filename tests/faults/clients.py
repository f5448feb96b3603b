"""Clients that go on through an experiment, and what they saw of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from tests.integration.cluster import ControlPlane
from tests.integration.objects import config_maps
from tests.integration.processes import ROOT, clean_environment, die_with_parent
from tests.integration.rawhttp import Way
from tests.integration.stack import fetch

#: Seconds in which the first answer is there.
BEGIN_SECONDS = 40

#: Seconds between two looks of a load balancer at readiness.
CHECK_INTERVAL = 0.5


class Health:
    """Asks ``/readiness`` again and again, as a load balancer does."""

    def __init__(self, ports: dict[int, int]) -> None:
        #: From the port that is balanced to the one that is asked.
        self.ports = ports
        self._up: set[int] = set(ports)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(CHECK_INTERVAL):
            for port, health in list(self.ports.items()):
                if fetch(health, "/readiness")[0] == 200:
                    self._up.add(port)
                else:
                    self._up.discard(port)

    def alive(self, port: int) -> bool:
        """What the last look said."""
        return port in self._up

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join(20)


class Client:
    """
    A load of `tests.faults.load`; a context manager that ends it.

    :ivar seen: what it saw; there once it ended.
    """

    def __init__(self, kind: str, way: Way, **settings: Any) -> None:
        self.seen: dict[str, Any] = {}
        content = {
            "kind": kind,
            "port": way.port,
            "ca": str(way.ca_file),
            "token": way.token,
            **settings,
        }
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.load", json.dumps(content)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            cwd=ROOT,
            preexec_fn=die_with_parent,
            text=True,
        )

    def begun(self) -> Self:
        """Wait for its first answers."""
        assert self.child.stdout is not None
        timer = threading.Timer(BEGIN_SECONDS, self.child.kill)
        timer.start()
        line = self.child.stdout.readline()
        timer.cancel()
        assert line == "begun\n", f"no answer within {BEGIN_SECONDS} s: {line[:2000]}"
        return self

    def __enter__(self) -> Self:
        return self.begun()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self.child.kill()
            self.child.wait()
            for pipe in (self.child.stdin, self.child.stdout):
                if pipe is not None:
                    pipe.close()

    def stop(self) -> dict[str, Any]:
        """End it; what it saw."""
        if not self.seen:
            out, _ = self.child.communicate(timeout=90)
            assert self.child.returncode == 0, out[-2000:]
            self.seen = json.loads(out.splitlines()[-1])
        return self.seen

    def __getitem__(self, name: str) -> Any:
        return self.seen[name]


def gets(way: Way, rate: float, target: str = "/api/v1/namespaces/default") -> Client:
    """*rate* requests a second."""
    return Client("get", way, rate=rate, target=target)


def posts(way: Way, rate: float, namespace: str, prefix: str) -> Client:
    """As many that each make a configmap."""
    target = config_maps(namespace)
    return Client("post", way, rate=rate, target=target, prefix=prefix)


def watches(way: Way, count: int, namespace: str, plane: ControlPlane) -> Client:
    """*count* clients that watch the configmaps of a namespace."""
    target = config_maps(namespace)
    version = plane.call("GET", target)["metadata"]["resourceVersion"]
    return Client("watch", way, watchers=count, target=target, version=version)


class Events:
    """
    Makes configmaps past kas, so that watches have something to see.

    :ivar made: their names.
    """

    def __init__(self, plane: ControlPlane, namespace: str, rate: float) -> None:
        self.made: list[str] = []
        self._plane = plane
        self._target = config_maps(namespace)
        self._rate = rate
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stopped.wait(1 / self._rate):
                name = f"event-{len(self.made):06}"
                body = {"metadata": {"name": name}, "data": {"pad": "x" * 200}}
                self._plane.call("POST", self._target, body)
                self.made.append(name)
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Make no more."""
        self._stopped.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error


def watch_problems(seen: Sequence[Sequence[str]], made: Sequence[str]) -> list[str]:
    """What is wrong with the events of each watch; they may lack the very last ones."""
    wanted = [f"ADDED {name}" for name in made]
    problems = []
    for number, events in enumerate(seen):
        mine = [one for one in events if " event-" in one]
        if mine == wanted:
            continue
        first = next(
            (at for at, (a, b) in enumerate(zip(mine, wanted, strict=False)) if a != b),
            min(len(mine), len(wanted)),
        )
        problems.append(
            f"watch {number}: {len(mine)} of {len(wanted)} events, "
            f"{len(mine) - len(set(mine))} twice; at {first}: "
            f"{mine[first : first + 2]} for {wanted[first : first + 2]}"
        )
    return problems


def seconds_until(look: Callable[[], Any], most: float, pause: float = 0.05) -> float:
    """How long it takes; *most* and more when it does not come."""
    begin = time.monotonic()
    while not look():
        if (passed := time.monotonic() - begin) > most:
            return passed
        time.sleep(pause)
    return time.monotonic() - begin
