"""Clients that go on through an experiment, and what they saw of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from tests.integration.cluster import ControlPlane
from tests.integration.objects import config_maps
from tests.integration.rawhttp import Way
from tests.integration.stack import fetch
from tools.load.clients import Load

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


def load(
    kind: str, way: Way, target: str = "/api/v1/namespaces/default", **settings: Any
) -> Load:
    """One of *kind* on *way*."""
    return Load(kind, [way.port], [target], way.token, ca=way.ca_file, **settings)


def gets(way: Way, rate: float, *target: str, **settings: Any) -> Load:
    """*rate* requests a second."""
    return load("get", way, *target, rate=rate, **settings)


def posts(way: Way, rate: float, namespace: str, prefix: str) -> Load:
    """As many that each make a configmap."""
    return load("post", way, config_maps(namespace), rate=rate, prefix=prefix)


def watches(way: Way, count: int, namespace: str, plane: ControlPlane) -> Load:
    """*count* clients that watch the configmaps of a namespace."""
    target = config_maps(namespace)
    version = plane.call("GET", target)["metadata"]["resourceVersion"]
    return load("watch", way, target, watchers=count, version=version)


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
