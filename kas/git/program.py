"""
The git program: a child process with limits, which kas can kill.

git uses only kas' configuration, and reads neither the machine's nor the user's
configuration.  The configuration of a repository cannot make git run another program,
because git may use only the protocols that kas permits for each call.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.error import ConnectionDone, ProcessExitedAlready
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.git.limits import GitLimits
from kas.git.outcomes import Outcomes
from tunnel.errors import CallError, Status
from tunnel.toolkit.timers import cancel_call

__all__ = ["Ended", "GitProgram"]

#: Maximum bytes of git's error output that are read; it may contain text from the
#: server.
MAX_COMPLAINT = 4096

#: Shell command that sets the limits of git and all its children, in a process group of
#: its own so that kas can kill all of them, and then executes git.  A file above the
#: limit causes an error message from git instead of a signal.
_LAUNCH = (
    'trap "" XFSZ; ulimit -t "$1" && ulimit -f "$2" && ulimit -v "$3" && shift 3 && '
    'exec setsid git "$@"'
)

_CONFIGURATION = {
    # git must also read repositories that belong to other users, because the operator
    # decides which repositories to trust.
    "safe.directory": "*",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.packedGitLimit": "256m",
    "core.packedGitWindowSize": "16m",
    "core.bigFileThreshold": "16m",
    "pack.threads": "1",
    "index.threads": "1",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # Every fetch must create one pack, so that the limit on the size of files limits
    # the fetch.
    "fetch.unpackLimit": "1",
    "fetch.recurseSubmodules": "false",
    # Refuse redirects, because a redirect could send kas and its credentials to any
    # server.
    "http.followRedirects": "false",
    # End a connection that is silent; kas enforces the timeout of the whole fetch.
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": "30",
    "credential.helper": "",
}

_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_PROTOCOL_FROM_USER": "0",
    "MALLOC_ARENA_MAX": "1",
}

#: Variables of kas' environment that git receives, for connections to Git servers.
_PASSED_ON = (
    "PATH",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)

#: Function that is called with the whole output so far and its last part; if it returns
#: an error, kas ends git.
Enough = Callable[[bytes | bytearray, bytes], CallError | None]


@attrs.frozen
class Ended:
    """
    Result of a git process that has ended.

    :ivar complaint: one line of git's error output, without control characters.
    """

    code: int
    out: bytes = attrs.field(repr=lambda out: f"{len(out)} bytes")
    complaint: str


class GitProgram:
    """
    Runner of git with a limited number of simultaneous processes.

    :param reactor: starts processes and provides the time.
    """

    def __init__(
        self, reactor: Any, limits: GitLimits, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.limits = limits
        self.clock: IReactorTime = reactor
        self._reactor = reactor
        #: Outcomes of runs, by git command.
        self.outcomes = Outcomes(reactor.seconds)
        self._environment = {
            name: environ[name] for name in _PASSED_ON if name in environ
        } | _ENVIRONMENT
        self._room = {
            False: DeferredSemaphore(limits.readings),
            True: DeferredSemaphore(limits.fetches),
        }
        self._children: set[_Child] = set()
        self._stopped = False

    async def run(
        self,
        folder: str,
        *arguments: str,
        data: bytes = b"",
        most: int = MAX_COMPLAINT,
        fetches: bool = False,
        configuration: Mapping[str, str] | None = None,
        enough: Enough | None = None,
        keep: bool = True,
    ) -> Ended:
        """
        Run git in the repository at *folder*, and return its output.

        :param data: the standard input of git.
        :param most: maximum bytes of output.
        :param fetches: whether git may use HTTP, with the longer timeout.
        :param configuration: further settings of git, which may be secret, because they
            do not appear in the list of processes.
        :param enough: called with the output; may end git early.
        :param keep: if False, *enough* reads the output as it arrives, and kas neither
            keeps nor returns the output.
        :raises CallError: RESOURCE_EXHAUSTED if the output is too long;
            DEADLINE_EXCEEDED after the timeout; UNAVAILABLE if git is missing, too many
            runs wait, or kas stops.
        """
        room = self._room[fetches]
        if len(room.waiting) >= self.limits.waiting:
            raise CallError(
                Status.UNAVAILABLE, "too many reads of Git repositories are waiting"
            )
        await room.acquire()
        try:
            with self.outcomes.measure(arguments[0]) as said:
                child = _Child(most, data, enough, keep)
                self._children.add(child)
                try:
                    ended = await self._run(
                        child, folder, arguments, fetches, configuration
                    )
                finally:
                    self._children.discard(child)
                if ended.code:
                    said.append("failed")
                return ended
        finally:
            room.release()

    def stop(self) -> None:
        """Kill all running processes, and start no further ones."""
        self._stopped = True
        for child in tuple(self._children):
            child.give_up(_stopping())

    async def _run(
        self,
        child: _Child,
        folder: str,
        arguments: tuple[str, ...],
        fetches: bool,
        configuration: Mapping[str, str] | None,
    ) -> Ended:
        if self._stopped:
            # Callers go on with other refs after an error.
            raise _stopping()
        limits = self.limits
        settings = {**_CONFIGURATION, **(configuration or {})}
        environment = {
            **self._environment,
            # Permit only these protocols for every repository, regardless of its own
            # configuration.
            "GIT_ALLOW_PROTOCOL": "http:https" if fetches else "none",
            # Do not search the parent folders for a repository either.
            "GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.abspath(folder)),
            "GIT_CONFIG_COUNT": str(len(settings)),
        }
        for index, (key, value) in enumerate(settings.items()):
            environment[f"GIT_CONFIG_KEY_{index}"] = key
            environment[f"GIT_CONFIG_VALUE_{index}"] = value
        command = [
            "sh",
            "-c",
            _LAUNCH,
            "sh",
            str(limits.cpu),
            # dash expects the size of files in units of 512 bytes, and memory in units
            # of 1024 bytes.
            str(limits.pack // 512),
            str(limits.memory // 1024),
            "-C",
            folder,
            *arguments,
        ]
        try:
            self._reactor.spawnProcess(child, "/bin/sh", command, environment)
        except OSError as error:
            raise CallError(
                Status.UNAVAILABLE, f"git cannot be started: {error.strerror}"
            ) from None
        seconds = limits.fetch_timeout if fetches else limits.read_timeout
        late = CallError(Status.DEADLINE_EXCEEDED, f"git took more than {seconds:g} s")
        call = self._reactor.callLater(seconds, child.give_up, late)
        try:
            ended = await child.ended
        finally:
            cancel_call(call)
        if ended.code == 127:
            text = "the git program is missing: install git"
            raise CallError(Status.UNAVAILABLE, text)
        return ended


class _Child(ProcessProtocol):
    """Protocol of one git process."""

    _log = Logger()

    def __init__(
        self,
        most: int,
        data: bytes,
        enough: Enough | None,
        keep: bool,
    ) -> None:
        self.ended: Deferred[Ended] = Deferred(lambda _: self.give_up(CancelledError()))
        self._most = most
        self._data = data
        self._enough = enough
        self._keep = keep
        self._size = 0
        self._out = bytearray()
        self._complaint = b""
        self._reason: Exception | None = None
        self._pid: int | None = None

    def connectionMade(self) -> None:
        transport: Any = self.transport
        self._pid = transport.pid
        if self._data:
            transport.write(self._data)
        transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        if self._reason is not None:
            return
        self._size += len(data)
        if self._keep:
            self._out += data
        if self._size > self._most:
            text = f"git printed more than {self._most} bytes"
            self.give_up(CallError(Status.RESOURCE_EXHAUSTED, text))
        elif self._enough is not None:
            reason = self._enough(self._out, data)
            if reason is not None:
                self.give_up(reason)

    def errReceived(self, data: bytes) -> None:
        self._complaint = (self._complaint + data)[-MAX_COMPLAINT:]

    def give_up(self, reason: Exception) -> None:
        """Kill git; the result fails with *reason* when git has ended."""
        if self._reason is not None:
            return
        self._reason = reason
        self._out.clear()
        transport: Any = self.transport
        if transport is None:
            return
        self._kill_group()
        with suppress(ProcessExitedAlready, OSError):
            transport.signalProcess("KILL")

    def processExited(self, reason: Failure) -> None:
        """
        Kill all processes that git started, without waiting until they have ended.
        """
        self._kill_group()
        transport: Any = self.transport
        if self._reason is not None:
            transport.loseConnection()

    def _kill_group(self) -> None:
        """
        Kill git and its children; after setsid, git has a process group of its own.
        """
        if self._pid is not None:
            with suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)

    def processEnded(self, reason: Failure) -> None:
        if self.ended.called:
            return
        if self._reason is not None:
            self.ended.errback(Failure(self._reason))
            return
        code = getattr(reason.value, "exitCode", None)
        if code is None and not reason.check(ConnectionDone):
            number = getattr(reason.value, "signal", 0)
            code = 128 + (number or 0)
        self.ended.callback(Ended(code or 0, bytes(self._out), _line(self._complaint)))


def _stopping() -> CallError:
    return CallError(Status.UNAVAILABLE, "kas is shutting down")


def _line(complaint: bytes) -> str:
    """Return git's own message as one line, or the server's message if git has none."""
    lines = complaint.decode("utf-8", "replace").splitlines()
    errors = [one for one in lines if one.startswith(("fatal:", "error:"))] or lines
    return "".join(c for c in "; ".join(errors) if c.isprintable())[:500]
