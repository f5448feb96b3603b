"""
`python -m bench.crowd [AGENTS]`: one kas and a hundred thousand agents.

kas has enough workers that each process stays below its limit of connections (``ulimit
-Hn``).  The agents are light agents in processes of this machine.  They connect to kas
by several addresses of the loopback, because each address has ports for only 28,000
connections.  They connect, are idle for a while, and return after a restart of kas,
while one connected agent receives requests all the time.
"""

from __future__ import annotations

import http.client
import json
import math
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.stand import Node, Stand
from tools.load.clients import Agents

#: Number of agents in total, and of agents in one process, whose tokens have to fit
#: into one line of its standard input.
AGENTS, EACH = 100_000, 10_000

#: Addresses at which the agents dial kas.
HOSTS = [f"127.0.0.{number}" for number in range(1, 9)]

#: Number of concurrent greetings of each process.
AT_ONCE = 64

#: Seconds during which the agents are idle.
REST = 30.0

#: Number of files that a process of kas has open in addition to its connections.
OTHERS = 500

#: Fraction of the permitted connections that each worker should use: the workers share
#: a port, so their numbers of connections differ.
FULL = 0.7


class _Asker(threading.Thread):
    """
    Thread that sends requests to one agent, one after the other.

    :ivar slowest: seconds of the slowest response since `begin`; the first response
        does not count, because it waited for the agent.
    """

    def __init__(self, stand: Stand) -> None:
        super().__init__(daemon=True)
        self.slowest = 0.0
        self.answers = self.others = 0
        self._is_there = False
        self.url = ""
        self._token = f"user:1:{stand.user_token}"
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.02):
            begun = time.monotonic()
            try:
                connection = http.client.HTTPConnection(self.url, timeout=30)
                headers = {"Authorization": f"Bearer {self._token}"}
                connection.request("GET", "/200", headers=headers)
                answer = connection.getresponse()
                answer.read()
                connection.close()
            except (OSError, http.client.HTTPException):
                # kas is not running.
                self.others += 1
                continue
            if answer.status == 200:
                self.answers += 1
                if self._is_there:
                    self.slowest = max(self.slowest, time.monotonic() - begun)
                self._is_there = True
            else:
                self.others += 1

    def begin(self, url: str) -> None:
        """Send requests to *url* from now on."""
        self.url, self.slowest, self._is_there = url, 0.0, False

    def stop(self) -> None:
        self._stopped.set()
        self.join(60)


@contextmanager
def _crowds(stand: Stand, port: int, count: int) -> Iterator[list[Agents]]:
    made = [
        Agents(stand.ca, [port], at_once=AT_ONCE, hosts=HOSTS)
        for _ in range(-(-count // EACH))
    ]
    for one in made:
        one.yield_to_others()
    try:
        yield made
    finally:
        for one in made:
            one.end()


def _say(what: str, value: float, unit: str) -> None:
    print(f"{what:56} {value:10.2f} {unit}", flush=True)


def main(count: int) -> None:
    """Print the figures, and write them to build/bench-crowd.json."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    workers = 1
    if count > files - OTHERS:
        workers = math.ceil(count / (files - OTHERS) / FULL)
        print(f"a process may open {files} files here: kas has {workers} workers")
    figures: dict[str, float] = {}

    def note(what: str, value: float, unit: str) -> None:
        figures[what] = value
        _say(what, value, unit)

    begun = time.monotonic()
    with Stand(agents=count) as stand:
        note(f"{count} agents are written down", time.monotonic() - begun, "s")
        node = _started(stand, workers)
        bare = node.process.private_memory()
        with _crowds(stand, node.agent_port, count) as crowds:
            begun, cpu = time.monotonic(), node.process.cpu()
            _in_parallel(crowds, stand, node.agent_port)
            took = time.monotonic() - begun
            note("all of them connect", took, "s")
            note("kas for each", (node.process.cpu() - cpu) / count * 1e6, "us")
            memory = (node.process.private_memory() - bare) / count / 1024
            note("private memory of kas for each", memory, "KiB")
            cpu = node.process.cpu()
            time.sleep(REST)
            note("kas at rest", (node.process.cpu() - cpu) / REST * 100, "% of a core")
            begun = time.monotonic()
            _add_one(stand)
            note("kasctl adds one more", time.monotonic() - begun, "s")
            asker = _Asker(stand)
            asker.begin(urlsplit(node.proxy).netloc)
            asker.start()
            time.sleep(5)
            note(
                "slowest request while kas reads the new file",
                asker.slowest * 1e3,
                "ms",
            )
            node.process.stop()
            again = _started(stand, workers)
            asker.begin(urlsplit(again.proxy).netloc)
            begun = time.monotonic()
            for one in crowds:
                one.come_back_at(again.agent_port)
            for number, one in enumerate(crowds):
                there = min(count - number * EACH, EACH)
                one.wait_until_made(2 * there)
            note("all of them come back", time.monotonic() - begun, "s")
            asker.stop()
            note("slowest request meanwhile", asker.slowest * 1e3, "ms")
            note("answers meanwhile", asker.answers, "")
    Path("build").mkdir(exist_ok=True)
    text = json.dumps(figures, indent=1) + "\n"
    Path("build/bench-crowd.json").write_text(text)


def _started(stand: Stand, workers: int) -> Node:
    return stand.start_kas(f"workers: {workers}\n", host="0.0.0.0")


def _in_parallel(crowds: list[Agents], stand: Stand, port: int) -> None:
    def connect(number: int) -> None:
        tokens = stand.tokens[number * EACH : (number + 1) * EACH]
        crowds[number].connect(tokens, port)

    threads = [
        threading.Thread(target=connect, args=(number,))
        for number in range(len(crowds))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _add_one(stand: Stand) -> None:
    command = [str(Path(sys.executable).parent / "kasctl"), "agent", "add", "one-more"]
    state = f"--state-directory={stand.state.path}"
    subprocess.run([*command, state], check=True, capture_output=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else AGENTS)
