"""
Runs renderers in child processes with limits, without network and without access to
other files.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from modules.gitops.agent.source.launcher import (
    NO_NAMESPACE,
    NOT_CONFINED,
    landlock_version,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.texts import clean
from tunnel.toolkit.timers import cancel_call

__all__ = ["PREVIEWS_AT_ONCE", "ChildProcesses", "Rendered"]

#: Maximum number of simultaneous renderers of commits: each uses a core and up to
#: `MEMORY`.
AT_ONCE = 2

#: Maximum number of simultaneous renderers of previews.  Perhaps only their authors
#: have read these charts and kustomizations, so endless loops in them must not block
#: commits.  The number is the same as agentk's maximum number of previews, so that a
#: merge request does not block an operator either.
PREVIEWS_AT_ONCE = 2

#: Seconds until a renderer is killed, and its maximum CPU seconds on all cores
#: together.
SECONDS, CPU_SECONDS = 60.0, 60

#: Share of its time that a renderer which exceeds its time must have spent waiting for
#: a processor to be considered starved by other processes.
STARVED = 0.5

#: Maximum bytes of a renderer's private memory, of one file that it writes, and of its
#: output.
MEMORY, FILE, OUTPUT = 1024**3, 64 * 1024**2, 32 * 1024**2

#: Soft memory limit of Go programs.
GO_MEMORY = "512MiB"

#: Maximum number of open files of a renderer.
FILES = 512

#: Maximum bytes of error output that are read, and maximum characters that are shown.
ERRORS, SHOWN = 64 * 1024, 1000

_LAUNCHER = Path(__file__).with_name("launcher.py")


@attrs.frozen
class Rendered:
    """
    Result of a renderer.

    :ivar output: empty if the renderer failed.
    :ivar problem: why the renderer failed; empty if it succeeded.
    :ivar is_said: whether *problem* is the program's own error output.
    """

    output: bytes = attrs.field(repr=False)
    problem: str = ""
    is_said: bool = False


class ChildProcesses:
    """
    Runner of renderers.

    :param reactor: a reactor that can spawn processes.
    :param at_once: the maximum number of simultaneous renderers.
    """

    _log = Logger()

    def __init__(self, reactor: Any, at_once: int = AT_ONCE) -> None:
        self._reactor = reactor
        self._room = DeferredSemaphore(at_once)
        #: Whether the kernel has provided a network namespace before: from then on,
        #: renderers run only with a network namespace.
        self._has_namespaces = False
        #: Version of the kernel's Landlock; 0 if the kernel does not support Landlock.
        self._landlock = landlock_version()
        self._said: set[str] = set()

    @property
    def is_confined(self) -> bool:
        """Whether the kernel confines the programs to their own files."""
        return self._landlock > 0

    async def run(
        self, program: str, arguments: Sequence[str], folder: Path
    ) -> Rendered:
        """
        Run *program* in *folder* and return its output.

        Cancelling kills the program at once, with all processes that the program has
        started.

        :param program: a name on PATH, or a path.
        :raises CallError: UNAVAILABLE if the program does not exist, or the kernel does
            not provide a network namespace although it did before.
        """
        found = shutil.which(program)
        if found is None:
            raise CallError(
                Status.UNAVAILABLE,
                f"agentk cannot find the program {program!r}: install it with agentk, "
                "or name it in modules.gitops of agentk's configuration file",
            )
        command = [os.path.realpath(found), *arguments]
        if not self._landlock:
            self._warn_once(
                "the kernel has no Landlock (Linux 5.13): kustomize, helm and sops can "
                "open every file that agentk can open; agentk refuses sources with "
                "paths that leave the repository, and helm does not validate values "
                "against schemas, because a schema can refer to any file"
            )
        await self._room.acquire()
        try:
            ended = await self._started(command, folder, network=False)
            if ended.status != NO_NAMESPACE:
                self._has_namespaces = True
                return ended.result()
            if self._has_namespaces:
                raise CallError(
                    Status.UNAVAILABLE,
                    "the kernel provides no network namespace now",
                )
            self._warn_once(
                "the kernel does not provide a network namespace: kustomize and helm "
                "run with agentk's network, but cannot open sockets if the kernel "
                "supports filters of system calls"
            )
            return (await self._started(command, folder, network=True)).result()
        finally:
            self._room.release()

    def _warn_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._log.warn("{text}", text=text)

    def _started(
        self, command: Sequence[str], folder: Path, *, network: bool
    ) -> Deferred[_Ended]:
        limits = {
            "network": network,
            "cpu": CPU_SECONDS,
            "memory": MEMORY,
            "file": FILE,
            "files": FILES,
            "landlock": self._landlock,
            "folder": str(folder),
        }
        whole = [sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(limits)]
        child = _Child(self._reactor)
        self._reactor.spawnProcess(
            child,
            sys.executable,
            [*whole, *command],
            env=_environment(folder),
            path=str(folder),
            childFDs={0: "w", 1: "r", 2: "r"},
        )
        return child.ended


def _environment(folder: Path) -> Mapping[str, str]:
    """Return an environment without agentk's variables, which may contain secrets."""
    home = str(folder / ".home")
    return {
        "GOMEMLIMIT": GO_MEMORY,
        # Proxy settings for the case that the kernel cannot remove the network:
        # kustomize fetches URLs in its own objects, and fails with this proxy.
        **{f"{scheme}_PROXY": "http://127.0.0.1:9" for scheme in ("HTTP", "HTTPS")},
        "HOME": home,
        "LC_ALL": "C",
        "PATH": "",
        "TMPDIR": home,
        **{f"HELM_{kind}_HOME": f"{home}/helm" for kind in ("CACHE", "CONFIG", "DATA")},
    }


@attrs.frozen
class _Ended:
    status: int
    output: bytes
    errors: bytes
    why: str
    #: The machine was too busy to run the renderer; a retry may succeed.
    is_starved: bool = False

    def result(self) -> Rendered:
        """
        Return the result of the renderer.

        :raises CallError: UNAVAILABLE if the failure is unrelated to the rendered
            files.
        """
        if self.is_starved:
            raise CallError(Status.UNAVAILABLE, self.why)
        if self.status == NOT_CONFINED and not self.output:
            why = "the kernel's Landlock failed to confine it"
            raise CallError(Status.UNAVAILABLE, why)
        if not self.why and self.status == 0:
            return Rendered(self.output)
        said = clean(self.errors.decode("utf-8", "replace").strip(), SHOWN)
        if self.why or not said:
            return Rendered(b"", self.why or f"it exited with status {self.status}")
        return Rendered(b"", said, is_said=True)


class _Child(ProcessProtocol):
    """
    Protocol of a renderer's process.

    :ivar ended: fires when the process ends; cancelling this Deferred kills the
        process.
    """

    def __init__(self, reactor: Any) -> None:
        self.ended: Deferred[_Ended] = Deferred(lambda _: self._kill("cancelled"))
        self._reactor = reactor
        self._output = bytearray()
        self._errors = bytearray()
        self._why = ""
        self._late: Any = None
        self._is_starved = False

    def connectionMade(self) -> None:
        self._late = self._reactor.callLater(SECONDS, self._too_late)
        self._transport.closeStdin()

    def _too_late(self) -> None:
        pid = self._transport.pid
        used = 0.0 if pid is None else _cpu_seconds(pid)
        why = f"it took longer than {SECONDS:g} s"
        if used < SECONDS * (1 - STARVED):
            self._is_starved = True
            why += f", but had a processor for only {used:.0f} s of them"
        self._kill(why)

    @property
    def _transport(self) -> Any:
        return self.transport

    def outReceived(self, data: bytes) -> None:
        self._output += data
        if len(self._output) > OUTPUT:
            self._output.clear()
            self._kill(f"it prints more than {OUTPUT} bytes")

    def errReceived(self, data: bytes) -> None:
        self._errors += data[: max(0, ERRORS - len(self._errors))]

    def processEnded(self, reason: Failure) -> None:
        cancel_call(self._late)
        value: Any = reason.value
        status = value.exitCode if value.exitCode is not None else -(value.signal or 0)
        why = self._why
        if not why and status < 0:
            why = f"it was killed by signal {-status}, probably because of a limit"
        if not self.ended.called:
            output = bytes(self._output)
            errors = bytes(self._errors)
            self.ended.callback(_Ended(status, output, errors, why, self._is_starved))

    def _kill(self, why: str) -> None:
        self._why = self._why or why
        pid = self._transport.pid if self.transport is not None else None
        if pid is None:
            return
        for kill in (os.killpg, os.kill):
            try:
                kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                # The launcher has not made its own process group yet, so only the
                # process itself exists.
                continue


def _cpu_seconds(pid: int) -> float:
    """
    Return the CPU seconds that a process has used; 0 if the process cannot be examined.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0.0
    # Split the fields after the name, which may contain spaces: proc(5), fields 14 and
    # 15.
    fields = stat.rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
