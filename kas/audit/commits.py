"""
The group commit: lines that must be on disk before kas continues.

The thread that writes the log writes such a line at once, and then waits for the disk
once for all of them that arrived in the meantime.  If the disk refuses the lines or
does not respond, the callers get an error, and kas refuses their requests.

    commit() -> queue -> [writer's thread] -> chain -> fdatasync -> callers
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kas.audit.chain import Chain
from tunnel.errors import CallError, Status
from tunnel.program.log_writer import LogWriter
from tunnel.toolkit.files import in_words

__all__ = ["COMMIT_SECONDS", "GROUP_SECONDS", "MAX_WAITING", "AuditCommits"]

#: Maximum number of lines that wait for the disk, at most 12 MiB: with a commit of 5
#: milliseconds for a hundred lines, these are on disk within 50 milliseconds.
MAX_WAITING = 1000

#: Maximum seconds that a caller waits for the disk.  Clients of the Kubernetes API wait
#: longer; a disk that needs more is not usable.
COMMIT_SECONDS = 5.0

#: Maximum seconds that a written line waits for further lines.
GROUP_SECONDS = 0.02


@attrs.define(eq=False)
class _Waiting:
    """A line that is not on disk yet."""

    line: str
    done: Deferred[None]
    timeout: IDelayedCall | None = None
    #: Whether its caller has got an error, so that the line is not needed.
    given_up: bool = False


class AuditCommits:
    """
    Lines whose callers wait until the disk has them.

    :param in_reactor: calls a function in the reactor's thread.
    :param monotonic: returns seconds, in the writer's thread.
    """

    _log = Logger()

    def __init__(
        self,
        writer: LogWriter,
        chain: Chain,
        reactor: Any,
        in_reactor: Callable[..., None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._chain = chain
        self._reactor = reactor
        self._in_reactor = in_reactor
        self._monotonic = monotonic
        self._waiting: set[_Waiting] = set()
        #: Number of lines that were put into the writer's queue.
        self._queued = 0
        #: Whether a caller has waited in vain, and no line was written since.
        self._is_stuck = False
        #: Why the last line is not on disk; empty if it is.
        self.problem = ""
        # For the writer's thread: lines that are written but perhaps not on disk, the
        # time of the first of them, and the number of lines that left the queue.
        self._written: list[_Waiting] = []
        self._since = 0.0
        self._handled = 0

    def commit(self, line: str) -> Deferred[None]:
        """
        Write a line, which ends with a line feed, and wait until it is on disk.

        The `Deferred` fails with `CallError` if the log cannot be written; the line may
        be in the log anyway.
        """
        if why := self._why_not():
            return fail(self._failed(why))
        waiting = _Waiting(line, Deferred())
        self._waiting.add(waiting)
        self._queued += 1
        if self._writer.is_running:
            waiting.timeout = self._reactor.callLater(
                COMMIT_SECONDS, self._give_up, waiting
            )
        self._writer.do(partial(self._write, waiting))
        return waiting.done

    def _why_not(self) -> str:
        if self._writer.is_dead:
            return "its writer has ended; restart kas"
        if self._is_stuck:
            return "the disk does not respond"
        if len(self._waiting) >= MAX_WAITING:
            return f"{MAX_WAITING} events wait for the disk"
        return ""

    def _give_up(self, waiting: _Waiting) -> None:
        waiting.timeout = None
        waiting.given_up = True
        self._is_stuck = True
        self._waiting.discard(waiting)
        waiting.done.errback(self._failed("the disk does not respond"))

    def _failed(self, why: str) -> CallError:
        if not self.problem:
            self._log.error(
                "cannot write the audit log: {why}; kas refuses the requests in "
                "observability.audit.enforced",
                why=why,
            )
        self.problem = why
        return CallError(
            Status.UNAVAILABLE,
            f"this request must be in the audit log of kas, which cannot be written: "
            f"{why}",
        )

    def settle(self) -> None:
        """Wait for the disk, in the writer's thread, before the file changes."""
        if self._written:
            self._sync()

    def _write(self, waiting: _Waiting) -> None:
        """Write one line, in the writer's thread."""
        self._handled += 1
        if waiting.given_up:
            self._in_reactor(self._moves)
        else:
            try:
                self._chain.write(waiting.line.encode("utf-8", "replace"))
            except (OSError, ValueError) as error:
                self._tell([waiting], error)
            else:
                if not self._written:
                    self._since = self._monotonic()
                self._written.append(waiting)
        # The queue has no further line that a commit could include, or the first line
        # has waited long enough.
        if self._written and (
            self._handled == self._queued
            or self._monotonic() - self._since >= GROUP_SECONDS
        ):
            self._sync()

    def _sync(self) -> None:
        written, self._written = self._written, []
        try:
            self._chain.sync()
        except OSError as error:
            self._tell(written, error)
        else:
            self._tell(written, None)

    def _tell(self, lines: Sequence[_Waiting], error: Exception | None) -> None:
        self._in_reactor(self._ended, lines, error)

    def _moves(self) -> None:
        self._is_stuck = False

    def _ended(self, lines: Sequence[_Waiting], error: Exception | None) -> None:
        """Tell the callers, in the reactor's thread."""
        self._is_stuck = False
        if error is None and self.problem:
            self.problem = ""
            self._log.info("the audit log can be written again")
        for one in lines:
            if one.timeout is not None:
                one.timeout.cancel()
            if one.given_up:
                continue
            self._waiting.discard(one)
            if error is None:
                one.done.callback(None)
            else:
                one.done.errback(self._failed(in_words(error)))
