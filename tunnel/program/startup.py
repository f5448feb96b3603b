"""Report of the reason why a service cannot start, in every state of twistd."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NoReturn, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tunnel.errors import ConfigurationError

_log = Logger()


class CannotStart(SystemExit, Exception):
    """
    Exception that ends the process with its reason and status 1.

    It is also an `Exception`, because twistd reports exceptions to the parent process
    of a daemon; the command would wait forever otherwise.
    """


def refuse(problems: Sequence[str]) -> NoReturn:
    """
    Exit with *problems*, one on each line, and status 1.

    A `UsageError` would make twistd print all its options first, and is not caught
    after the options were parsed.
    """
    raise CannotStart("\n".join(problems))


def refuse_unless(problems: list[str], steps: Iterable[Callable[[], None]]) -> None:
    """
    Run every step, whatever the result of earlier steps; call `refuse` if there are
    problems.

    :param problems: known problems.
    """
    for step in steps:
        try:
            step()
        except ConfigurationError as error:
            problems.extend(error.problems)
    if problems:
        refuse(problems)


def start_or_exit(start: Coroutine[Any, Any, None], reactor: Any) -> None:
    """
    Run *start*; if it fails, end the process with the reason and status 1.

    A failure before the reactor runs ends twistd at once, even while it becomes a
    daemon: its parent then reports the failure to the operator.

    :raises CannotStart: if the program failed at once.
    """
    failures: list[Failure] = []
    late = False

    def failed(failure: Failure) -> None:
        if not late:
            failures.append(failure)
            return
        for line in _lines(failure):
            _log.critical("{line}", line=line)
        # twistd itself always ends with status 0.
        reactor.addSystemEventTrigger("after", "shutdown", os._exit, 1)
        reactor.stop()

    starting: Deferred[None] = Deferred.fromCoroutine(start)
    starting.addErrback(failed)
    late = True
    if failures:
        raise CannotStart("\n".join(_lines(failures[0])))


def _lines(failure: Failure) -> list[str]:
    if isinstance(failure.value, ConfigurationError):
        return list(failure.value.problems)
    _log.failure("the service did not start", failure)
    return [f"the service did not start: {failure.getErrorMessage()}"]


class Signalled(Protocol):
    """The requests that an operator sends to a program by signals."""

    def reload(self) -> None:
        """Reopen log files, and read all files again."""

    def rotate_log(self) -> None:
        """Rename the log file, and start a new one."""


def obey_signals(service: Signalled, reactor: Any) -> None:
    """
    Make SIGHUP call `reload`, and SIGUSR1 `rotate_log`, as in twistd.

    Without this, SIGHUP would end the process, including requests in progress.
    """
    for number, act in (
        (signal.SIGHUP, service.reload),
        (signal.SIGUSR1, service.rotate_log),
    ):
        signal.signal(number, lambda *_, act=act: reactor.callFromThread(act))
