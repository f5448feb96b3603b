"""Free ports, and the owners of used ports."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

__all__ = ["free_ports", "holder", "is_free"]

_LISTENING = "0A"


def is_free(port: int) -> bool:
    """Tell whether kas could listen on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return different ports that are free now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def holder(port: int) -> str:
    """Return the program that listens on a port, if this user may see it."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted.intersection(_open_files(entry)):
                name = (entry / "comm").read_text().strip()
                return f"{name} (process {entry.name})"
        except OSError:
            continue  # gone, or somebody else's
    return "a process of another user"


def _open_files(process: Path) -> Iterator[str]:
    for link in (process / "fd").iterdir():
        try:
            yield os.readlink(link)
        except OSError:
            continue  # closed meanwhile


def _inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            cells = line.split()
            if cells[3] == _LISTENING and int(cells[1].rpartition(":")[2], 16) == port:
                inodes.add(cells[9])
    return inodes
