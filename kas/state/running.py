"""
Records of running kas in the state directory, which contain their addresses for
`kasctl`.

Each process has a file of its own, because several processes may share a directory,
even from several hosts or containers.  The file exists from the time when the listeners
are open until kas begins to stop; from then on, it has another name, until kas has
ended.  If kas crashed, its file remains, but names a process that does not exist; the
next kas that starts on this host removes such files.  Processes of other hosts are
ignored, because no program on this host could reach them.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Sequence

import attrs
from twisted.logger import Logger

from kas.state.directory import StateDirectory, process_name
from kas.state.process_socket import CALLS, CONTROL, SUFFIX
from tunnel.errors import ConfigurationError
from tunnel.program.opened import Opened

__all__ = [
    "AGENTS",
    "EXTERNAL_API",
    "KUBERNETES_API",
    "OBSERVABILITY",
    "OTHER_KAS",
    "WEB",
    "Running",
    "file_name",
    "forget",
    "hold",
    "is_alive",
    "leave",
    "look",
    "look_at_leaving",
    "refuse_twins",
    "tell",
]

_PREFIX = "running-"

#: Prefix of the name of the file of a kas that is stopping.
_LEAVING = "stopping-"

#: Name of the file that a kas without Redis locks, because no other kas may use the
#: directory.
_HELD = "kas.lock"

_log = Logger()

#: Purposes of listeners, as named in records.
AGENTS = "agents"
OBSERVABILITY = "health and metrics"
KUBERNETES_API = "kubernetes_api"
EXTERNAL_API = "the external API"
OTHER_KAS = "other kas"
WEB = "pages of modules"

# Addresses for connections from this machine to listeners on every address.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104


@attrs.frozen
class Running:
    """Record of a running kas."""

    pid: int
    listeners: tuple[Opened, ...]
    #: Whether `kasctl` may change something only after its audit event is on disk.
    enforces_changes: bool = False

    def find(self, what: str) -> Opened | None:
        """
        Return the first listener for *what*, at an address that this machine reaches.
        """
        for one in self.listeners:
            if one.what == what:
                return attrs.evolve(one, address=_reachable(one.address))
        return None

    def url(self, what: str) -> str | None:
        """
        Return the listener for *what* as a URL; None if no such listener exists, or if
        it is a Unix socket.
        """
        found = self.find(what)
        if found is None or found.address.startswith("/"):
            return None
        scheme = "http" if found.certificate_file is None else "https"
        return f"{scheme}://{found.address}{found.path}"

    def __str__(self) -> str:
        shown = [
            f"{name} {found.address}"
            for name, what in (("agents", AGENTS), ("API proxy", KUBERNETES_API))
            if (found := self.find(what)) is not None
        ]
        return f"{self.pid} ({', '.join(shown) or 'no ports known'})"


def _reachable(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return f"{_EVERYWHERE.get(host, host)}{colon}{port}"


def refuse_twins(state: StateDirectory) -> None:
    """
    Refuse to start beside a kas of another container with the same host name.

    Several containers may share the directory, and host names distinguish their files.
    If a file has the id of this process, or names a process that does not exist in this
    container, but its kas still responds, then the file belongs to another container
    with the same host name.

    :raises ConfigurationError: if such a kas exists.
    """
    # Import it here, because kasctl uses this file without Twisted's endpoints.
    from tunnel.program.sockets import is_listening

    for pid, path in state.of_processes(CONTROL, SUFFIX):
        if (pid == os.getpid() or not is_alive(pid)) and is_listening(str(path)):
            host = socket.gethostname()
            raise ConfigurationError(
                [
                    f"{path}: another kas listens there, in another container with "
                    f"the same host name, {host}: give each container its own host "
                    "name or state directory"
                ]
            )


def hold(state: StateDirectory) -> int | None:
    """
    Lock the directory for one kas without Redis, until it stops.

    Two such kas would not know each other's agents.  The lock ends when its process
    ends.

    :returns: a descriptor to close; None if the directory is not writable.
    :raises ConfigurationError: if another kas holds the lock.
    """
    try:
        descriptor = state.open_lock(_HELD)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            return None
        known = ", ".join(map(str, look(state)))
        raise ConfigurationError(
            [
                f"{state.path}: another kas {known or 'that is starting'} uses this "
                "state directory, and without 'redis' the two would not know each "
                "other's agents: stop that one, pass another --state-directory, or "
                "configure 'redis' for both"
            ]
        ) from None
    return descriptor


def file_name(pid: int) -> str:
    """Return the name of the file of a process."""
    return f"{_PREFIX}{process_name(pid)}.json"


def _leaving_name(pid: int) -> str:
    return f"{_LEAVING}{process_name(pid)}.json"


def tell(
    state: StateDirectory, listeners: Sequence[Opened], enforces_changes: bool = False
) -> None:
    """
    Write the listeners of this process to its file, unless the state is read-only.

    :param enforces_changes: see `Running`.
    """
    _sweep(state)
    content = {
        "pid": os.getpid(),
        "listeners": [one.to_json() for one in listeners],
        "enforces_changes": enforces_changes,
    }
    name = file_name(os.getpid())
    try:
        state.write(name, json.dumps(content, indent=1).encode() + b"\n")
    except OSError as error:
        _log.warn(
            "cannot write {file} ({reason}): kasctl will not know our addresses",
            file=str(state.file(name)),
            reason=error.strerror,
        )


def leave(state: StateDirectory) -> None:
    """
    Rename the file of this process so that `look` ignores it, because kas is stopping.
    """
    file = state.file(file_name(os.getpid()))
    try:
        file.rename(state.file(_leaving_name(os.getpid())))
    except FileNotFoundError:
        pass  # This kas stopped before it was ready, so the file does not exist.
    except OSError:
        _log.failure("renaming {file} failed", file=str(file))


def forget(state: StateDirectory) -> None:
    """Remove the file of this process."""
    for name in (file_name(os.getpid()), _leaving_name(os.getpid())):
        file = state.file(name)
        try:
            file.unlink(missing_ok=True)
        except OSError:
            _log.failure("removing {file} failed", file=str(file))


def look(state: StateDirectory) -> tuple[Running, ...]:
    """Return the records of the running kas on this host, sorted by process id."""
    return _all_of(state, _PREFIX)


def look_at_leaving(state: StateDirectory) -> tuple[Running, ...]:
    """
    Return the records of kas that are stopping; some of their listeners are closed.
    """
    return _all_of(state, _LEAVING)


def _all_of(state: StateDirectory, prefix: str) -> tuple[Running, ...]:
    found = (
        _read(pid, state, path.name)
        for pid, path in state.of_processes(prefix, ".json")
        if is_alive(pid)
    )
    return tuple(sorted((one for one in found if one), key=lambda one: one.pid))


def _sweep(state: StateDirectory) -> None:
    """Remove the files of processes that do not exist any more."""
    for prefix, suffix in (
        (_PREFIX, ".json"),
        (_LEAVING, ".json"),
        (CONTROL, SUFFIX),
        (CALLS, SUFFIX),
    ):
        for pid, path in state.of_processes(prefix, suffix):
            # In a container, the process id is always the same, so the file may belong
            # to an earlier process.
            ours = prefix == _LEAVING and pid == os.getpid()
            if ours or not is_alive(pid):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    # Continue, because a leftover file is harmless.
                    _log.debug(
                        "cannot remove {path}: {reason}", path=path, reason=error
                    )


def is_alive(pid: int) -> bool:
    """Return whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # The process belongs to another user, and is alive.
    return True


def _read(pid: int, state: StateDirectory, name: str) -> Running | None:
    # Ignore errors: only programs write this file, and nothing depends on it.
    try:
        content = json.loads(state.read(name) or b"")
        listeners = tuple(map(Opened.from_json, content["listeners"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Running(pid, listeners, content.get("enforces_changes") is True)
