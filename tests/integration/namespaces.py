"""Two machines on one: network namespaces with a cable between them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from tests.integration import needs


@attrs.frozen
class Host:
    """A machine as far as its network goes; files and processes are this machine's."""

    name: str
    address: str

    def command(self, *words: str | Path) -> list[str]:
        """One that runs there."""
        return ["ip", "netns", "exec", self.name, *map(str, words)]


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True)


def _must(words: Sequence[str]) -> None:
    done = _ip(*words)
    assert done.returncode == 0, (words, done.stderr)


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """
    Two that reach each other, and nothing else, at addresses for documentation.
    """
    needs.program("ip", "apt-get install iproute2")
    mine = f"txkas-{os.getpid()}"
    hosts = Host(f"{mine}-a", "192.0.2.2"), Host(f"{mine}-b", "192.0.2.3")
    with ExitStack() as stack:
        for host in hosts:
            made = _ip("netns", "add", host.name)
            if made.returncode != 0:
                needs.missing(
                    f"network namespaces ({made.stderr.strip()})", "run as root"
                )
            stack.callback(_ip, "netns", "delete", host.name)
        one, two = hosts
        cable = ["link", "add", "eth0", "netns", one.name, "type", "veth"]
        _must([*cable, "peer", "name", "eth0", "netns", two.name])
        for host in hosts:
            inside = ["-n", host.name]
            _must([*inside, "address", "add", f"{host.address}/24", "dev", "eth0"])
            _must([*inside, "link", "set", "eth0", "up"])
            _must([*inside, "link", "set", "lo", "up"])
        yield hosts
