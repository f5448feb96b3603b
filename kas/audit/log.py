"""
Audit log: who sent which request to which cluster, with its result.

Modules choose the events by the level that the operator configured.  The log has one
JSON object per line, in its own file; a thread writes it, so that no request waits for
a disk that does not respond.  Events that arrive faster than the thread can write are
dropped and counted, and the file contains their number.

Clients without an accepted credential cause events, too.  The number of these events is
limited, so that they cannot fill the disk; the limit does not apply to events of users.

Events have one of two classes.  Best effort: `AuditLog.record` never waits.  Enforced:
`AuditLog.commit` waits until the event is on disk; see `kas.audit.commits`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from kas.audit.chain import Chain, rfc3339
from kas.audit.commits import AuditCommits
from kas.audit.key import read_signer
from kas.audit.last import LastCheckpoints
from kas.config.schema import Audit
from kas.state.directory import StateDirectory
from tunnel import __version__
from tunnel.api import AuditEvent, AuditLevel, AuditStage, EnforcedEvents
from tunnel.errors import ConfigurationError
from tunnel.program.log_writer import FileSink, LogWriter
from tunnel.program.parts import Part
from tunnel.program.runtime import Runtime
from tunnel.toolkit.texts import clean
from tunnel.toolkit.token_bucket import TokenBucket
from tunnel.toolkit.uuid7 import Uuid7

__all__ = ["MAX_LINE", "MAX_TEXT", "AuditLog", "file_problems"]

#: Maximum characters of one text: a path may be 64 KiB long, and whole paths would fill
#: the disk.
MAX_TEXT = 2048

#: Maximum characters of one text in an event of a client without an accepted
#: credential.
MAX_STRANGER_TEXT = 256

#: Maximum bytes of one line without the fields of the chain: some receivers of logs
#: split longer lines, and an event with the longest permitted texts would have more.
MAX_LINE = 12 * 1024

#: Maximum number of characters that wait to be written: 8,000 events, because the
#: writer waits for the disk before each checkpoint, which may take a second.
MAX_QUEUED = 4 * 1024 * 1024

#: Maximum seconds until an event is signed.
CHECKPOINT_SECONDS = 1.0

#: Fields that the log itself sets.
RESERVED = frozenset(("v", "seq", "prev", "torn", "stage", "id", "time", "kas", "cut"))

#: Encoder without spaces, created once, because `json.dumps` would create one per line.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

#: Maximum number of events of all clients without an accepted credential together, as a
#: burst and per second: a burst of attempts with a mistyped token is recorded as a
#: whole, and a flood writes at most 25 KB per second, which is 2 GB a day.
STRANGER_BURST, STRANGERS_PER_SECOND = 100, 10

#: Seconds between two attempts to write the number of refused requests, which also show
#: whether the log can be written again.
PROBE_SECONDS = 1.0

#: Seconds after which the number of dropped events is written to the file.
NOTE_SECONDS = 10.0


class AuditLog(Collector, Part):
    """
    Audit log, whose events a thread writes to a file.

    :param settings: None if no events are written.
    :raises ConfigurationError: if the file cannot be written, or the key for
        checkpoints cannot be read or created.
    """

    name = "the audit log"

    def __init__(
        self,
        settings: Audit | None,
        runtime: Runtime,
        state: StateDirectory,
    ) -> None:
        self._runtime = runtime
        self._seconds: Callable[[], float] = runtime.reactor.seconds
        #: Returns a new id for an event.
        self.new_id: Callable[[], str] = Uuid7(runtime.now)
        # For the writer's thread.
        self._other_ids = Uuid7(runtime.now)
        self._kas = runtime.instance_id.hex()
        #: Numbers of events of both classes.
        self._recorded = self._committed = 0
        #: Number of events that could not be committed, and the part of it that is not
        #: in the file yet.
        self._refused = self._unsaid_refused = 0
        self._refused_because = ""
        #: Whether `_note_refused` is planned.
        self._probes = False
        self._disk_free: int | None = None
        self._started = False
        now = self._seconds()
        self._strangers = TokenBucket(STRANGER_BURST, STRANGERS_PER_SECOND, now)
        self._left_out = 0
        #: Part of `_left_out` that has not been written to the file yet.
        self._unsaid = 0
        self.level = AuditLevel.NONE
        #: Requests that are forwarded only after `commit`.
        self.enforced: frozenset[EnforcedEvents] = frozenset()
        self._commits: AuditCommits | None = None
        self._file: Path | None = None
        self._writer: LogWriter | None = None
        self._chain: Chain | None = None
        #: Whether a checkpoint is planned.
        self._signs = False
        if settings is not None:
            self.level = AuditLevel(settings.events)
            self.enforced = frozenset(map(EnforcedEvents, settings.enforced))
            self._file = settings.file.absolute()
            signer = read_signer(state, create=True)
            about = {"program": __version__, "host": socket.gethostname()}
            sink = _sink(settings.file)
            self._chain = Chain(
                sink,
                self._kas,
                signer,
                LastCheckpoints(state, settings.file),
                self._chain_line,
                about,
                runtime.now,
            )
            self._writer = LogWriter(self._chain, self._dropped_line, MAX_QUEUED)
            self._commits = AuditCommits(
                self._writer, self._chain, runtime.reactor, self._in_reactor
            )

    def start(self) -> None:
        """Start the thread that writes events."""
        if self._writer is not None and self._chain is not None:
            self._started = True
            self._writer.start()
            self._writer.do(self._chain.begin)
            self._plan_checkpoint()
            self._runtime.reactor.addSystemEventTrigger(
                "after", "shutdown", self._last_words
            )

    def _last_words(self) -> None:
        if self._writer is not None and self._chain is not None:
            self._note_left_out()
            self._writer.last_words()
            self._writer.do(self._chain.end)
            self._writer.flush()

    def reopen(self) -> None:
        """
        Start a new file with the same name, because another program has moved the old
        file.
        """
        if self._writer is not None and self._commits is not None:
            self._writer.do(self._commits.settle)
            self._writer.reopen()

    def record(self, module: str, event: AuditEvent) -> None:
        """Write one event, without waiting."""
        if self._writer is None:
            return
        if event.stranger and not self._strangers.spend(self._seconds()):
            self._leave_out()
            return
        self._recorded += 1
        self._write(self._event_line(module, event))

    def commit(self, module: str, event: AuditEvent) -> Deferred[None]:
        """
        Write one event, and wait until it is on disk.

        The `Deferred` fails with `CallError` if the log cannot be written.
        """
        if self._commits is None:
            return succeed(None)
        committed = self._commit(self._event_line(module, event))
        committed.addErrback(self._count_refusal)
        return committed

    def _commit(self, line: str) -> Deferred[None]:
        assert self._commits is not None
        self._plan_checkpoint()
        return self._commits.commit(line).addCallback(self._count_commit)

    def _count_commit(self, _: object) -> None:
        self._committed += 1

    def _count_refusal(self, failure: Failure) -> Failure:
        assert self._commits is not None
        self._refused += 1
        self._unsaid_refused += 1
        self._refused_because = self._commits.problem
        self._plan_probe()
        return failure

    def _plan_probe(self) -> None:
        if self._started and not self._probes:
            self._probes = True
            self._runtime.reactor.callLater(PROBE_SECONDS, self._note_refused)

    def _note_refused(self) -> None:
        """Write the number of refused requests, as soon as that is possible."""
        count, self._unsaid_refused = self._unsaid_refused, 0
        assert self._commits is not None
        fields = {
            "action": "audit.refused",
            "outcome": "",
            "count": count,
            "reason": self._refused_because,
        }

        def failed(_: Failure) -> None:
            self._unsaid_refused += count

        def ended(_: object) -> None:
            self._probes = False
            if self._unsaid_refused:
                self._plan_probe()

        line = self._line(AuditStage.CHANGED, self.new_id(), fields)
        self._commit(line).addErrback(failed).addBoth(ended)

    def _in_reactor(self, act: Callable[..., None], *arguments: Any) -> None:
        if self._started:
            self._runtime.reactor.callFromThread(act, *arguments)
        else:
            act(*arguments)

    def _event_line(self, module: str, event: AuditEvent) -> str:
        line: dict[str, Any] = {"module": module, "action": event.action}
        access = event.access
        if access is not None:
            line["credential"] = access.credential_id
            line["agent_id"] = access.agent_id
            line["agent"] = access.agent_name
            if access.impersonation is not None:
                line["as"] = access.impersonation.username
        line["outcome"] = event.outcome
        for name, value in event.details.items():
            if name not in RESERVED:
                line.setdefault(name, value)
        longest = MAX_STRANGER_TEXT if event.stranger else MAX_TEXT
        return self._line(event.stage, event.id, line, longest)

    def _write(self, line: str) -> None:
        if self._writer is not None:
            self._writer.write(line)
            self._plan_checkpoint()

    def _plan_checkpoint(self) -> None:
        # Before `start`, the reactor may not run, and twistd may fork.
        if self._started and not self._signs:
            self._signs = True
            self._runtime.reactor.callLater(CHECKPOINT_SECONDS, self._sign)

    def _sign(self) -> None:
        self._signs = False
        if self._writer is not None and self._chain is not None:
            self._writer.do(self._chain.sign)
            self._writer.do(self._look_at_disk)

    def _look_at_disk(self) -> None:
        """Read the free space, in the writer's thread, because the disk may hang."""
        if self._file is not None:
            found = os.statvfs(self._file.parent)
            self._disk_free = found.f_bavail * found.f_frsize

    def _leave_out(self) -> None:
        self._left_out += 1
        self._unsaid += 1
        if self._unsaid == 1 and self._started:
            self._runtime.reactor.callLater(NOTE_SECONDS, self._note_left_out)

    def _note_left_out(self) -> None:
        count, self._unsaid = self._unsaid, 0
        if count and self._writer is not None:
            self._write(self._note("audit.left_out", count, self.new_id()))

    def _line(
        self,
        stage: AuditStage,
        event_id: str,
        fields: dict[str, Any],
        longest: int = MAX_TEXT,
    ) -> str:
        """
        Return the line of one event without the fields of the chain, which has at most
        `MAX_LINE` bytes.

        :param longest: maximum characters of one text.
        """
        head = self._head(stage, event_id)
        while True:
            line, cut = head.copy(), False
            for name, value in fields.items():
                if isinstance(value, str):
                    cut = cut or len(value) > longest
                    line[name] = clean(value, longest)
                else:
                    line[name] = value
            if cut:
                line["cut"] = True
            text = _encode(line) + "\n"
            # A character has at most four bytes.
            if (
                len(text) * 4 <= MAX_LINE
                or len(text.encode("utf-8", "replace")) <= MAX_LINE
            ):
                return text
            longest //= 2

    def _head(self, stage: AuditStage, event_id: str) -> dict[str, Any]:
        """Return the fields of any event."""
        return {
            "stage": stage.value,
            "id": event_id or self.new_id(),
            "time": rfc3339(self._runtime.now()),
        }

    def _chain_line(self, action: str, fields: Mapping[str, Any]) -> str:
        """Return a line of the chain itself, whose texts are not shortened."""
        head = self._head(AuditStage.CHANGED, self._other_ids())
        line = {**head, "action": action, **fields}
        return _encode(line) + "\n"

    def _note(self, action: str, count: int, event_id: str) -> str:
        fields = {"action": action, "outcome": "", "count": count}
        return self._line(AuditStage.CHANGED, event_id, fields)

    def _dropped_line(self, count: int) -> str:
        return self._note("audit.dropped", count, self._other_ids())

    def collect(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "kas_audit_events",
            "Events of the audit log, by class: best_effort or enforced.",
            labels=["class"],
        )
        events.add_metric(["best_effort"], self._recorded)
        events.add_metric(["enforced"], self._committed)
        yield events
        yield from self._gauges()
        for name, text, value in (
            (
                "kas_audit_refused_total",
                "Requests that kas refused because the audit log cannot be written.",
                self._refused,
            ),
            (
                "kas_audit_events_dropped_total",
                (
                    "Events that kas dropped because they arrived faster than it could "
                    "write them."
                ),
                0 if self._writer is None else self._writer.dropped,
            ),
            (
                "kas_audit_checkpoints_total",
                "Signed checkpoints of the audit log.",
                0 if self._chain is None else self._chain.checkpoints,
            ),
            (
                "kas_audit_events_left_out_total",
                "Refusals of clients without an accepted credential beyond the limit.",
                self._left_out,
            ),
        ):
            yield CounterMetricFamily(name, text, value=value)

    def _gauges(self) -> Iterator[Metric]:
        if self._commits is None or self._chain is None:
            return
        yield GaugeMetricFamily(
            "kas_audit_writable",
            "1 unless the last enforced event could not be written.",
            0 if self._commits.problem else 1,
        )
        if (signed_at := self._chain.signed_at) is not None:
            yield GaugeMetricFamily(
                "kas_audit_checkpoint_age_seconds",
                "Seconds since the last checkpoint of the audit log.",
                max(0.0, self._runtime.now() - signed_at),
            )
        if (free := self._disk_free) is not None:
            yield GaugeMetricFamily(
                "kas_audit_disk_free_bytes",
                "Free bytes on the disk of the audit log, at the last checkpoint.",
                free,
            )


def file_problems(audit: Audit | None, configuration: str | None) -> list[str]:
    """
    Return why kas cannot write its audit log, without creating the file.

    Modes are not checked, because the caller may not be the user of kas.

    :param configuration: kas' configuration file, for the messages.
    """
    if audit is None:
        return []
    path, folder = audit.file, audit.file.parent
    where = f"{configuration}: observability.audit.file: {path}"
    if not folder.is_dir():
        return [f"{where}: folder {folder} does not exist; create it"]
    if path.is_dir():
        return [f"{where}: is a folder; name a file in it"]
    if (audit.exports or audit.keep) and path.exists() and not path.is_file():
        return [
            f"{where}: is not a regular file, which 'exports' and 'keep' need; name a "
            "file on a disk, or remove these settings"
        ]
    return []


def _sink(file: Path) -> FileSink:
    try:
        # Restrict the mode, because the file contains data about users that other users
        # of this machine must not see.
        file.touch(mode=0o640, exist_ok=True)
        return FileSink(file)
    except OSError as error:
        raise ConfigurationError(
            [
                f"observability.audit.file: {file}: cannot be written "
                f"({error.strerror}); correct the path or its permissions"
            ]
        ) from None
