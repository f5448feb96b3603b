"""``kasctl audit``: verify and search the audit log of kas."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs
import click

from kas.audit.chain import rfc3339
from kas.audit.cluster import ClusterLog, TooManyEvents
from kas.audit.exports.formats import COLUMNS, csv_row, syslog_message
from kas.audit.files import follow, in_order, lines_of, open_log
from kas.audit.holds import Hold, Holds, new_hold_id
from kas.audit.key import read_signer
from kas.audit.last import LastCheckpoints
from kas.audit.notes import MAX_NOTE, NoteError, NoteKey
from kas.audit.search import AuditQuery, Found, ObjectPattern
from kas.audit.verify import LogFinding, LogReport, Verdict, Verifier
from kas.ctl.calls import Callee, callee_options
from kas.ctl.common import DURATION, Ctl, command, counted, printable
from kas.ctl.operator import operator_name
from tunnel.config import parse_duration
from tunnel.errors import ConfigurationError, TunnelError
from tunnel.toolkit.csv_text import csv_rows
from tunnel.toolkit.files import in_words

__all__ = ["declare"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Maximum number of events that a command prints, unless ``--limit`` is given.
LIMIT = 10_000

#: Method of kas that searches, and its timeout in seconds.
_SEARCH = "txkas.audit.v1.AuditLog/Search"
TIMEOUT = 30.0

#: Exit status if events of a kas or of a file are missing.
PARTIAL = 3

#: Seconds between two looks at a file.
TAIL_PAUSE = 0.5

#: Maximum number of findings, and of requests without an end, that are printed.
SHOWN = 20


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    group.add_command(audit)


@click.group()
def audit() -> None:
    """Verify and search the audit log of kas."""


@command(audit, "key")
def _key(ctl: Ctl) -> None:
    """
    Print the public key that verifies the audit log.

    It is the key of the kas with this state directory, as the text of a C2SP note key.
    """
    key = str(read_signer(ctl.existing()).key)
    ctl.result({"key": key}, key)


@command(audit, "verify")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--key",
    metavar="KEY",
    help="Public key that 'kasctl audit key' printed, or a file with it  [default: the "
    "key and the checkpoints in the state directory].",
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A checkpoint that was stored elsewhere; may be repeated.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Accept that earlier files were removed; the others are verified as before.",
)
def _verify(
    ctl: Ctl,
    files: Sequence[Path],
    key: str | None,
    checkpoints: Sequence[Path],
    partial: bool,
) -> None:
    """
    Find changed, missing and inserted lines of an audit log.

    FILES are all files of the log, in any order; they may be compressed with gzip.  The
    exit status is 0 if the log is good, 1 if it was tampered with, and 2 if nothing is
    wrong but the files do not prove that nothing is missing, or cannot be read.
    """
    try:
        report = _report(ctl, files, key, checkpoints, partial)
    except (TunnelError, OSError) as error:
        for problem in getattr(error, "problems", (in_words(error),)):
            click.echo(problem, err=True)
        raise SystemExit(int(Verdict.INCOMPLETE)) from None
    verdict = report.verdict
    content = {
        "verdict": verdict.name.lower(),
        "lines": report.lines,
        "findings": [
            {"verdict": one.verdict.name.lower(), "place": one.place, "text": one.text}
            for one in report.findings
        ],
        "chains": [
            {
                "kas": one.kas,
                "lines": one.lines,
                "signed": one.signed,
                "state": one.state,
                "unfinished": list(one.unfinished),
            }
            for one in report.chains
        ],
    }
    ctl.result(content, "\n".join(map(printable, _texts(report, len(files)))))
    if verdict:
        raise SystemExit(int(verdict))


class _Time(click.ParamType[str]):
    """Type of options for a time: a duration before now, or a time of day."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the time as lines have it."""
        with suppress(ValueError):
            return rfc3339(time.time() - parse_duration(value))
        try:
            found = datetime.fromisoformat(value)
            return rfc3339(found.timestamp())
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is not a time such as 2h (ago) or 2026-05-01T12:00:00+00:00"
            )


class _Object(click.ParamType[ObjectPattern]):
    """Type of an option for an object of a request."""

    name = "object"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> ObjectPattern:
        """Parse an object."""
        try:
            return ObjectPattern.parse(value)
        except ValueError as error:
            self.fail(str(error))


def _query_options(function: _F) -> _F:
    """Add the options that select events, which *function* gets as ``query``."""

    @click.option(
        "--user",
        default="",
        help="A credential (user:alice), its name, or an operator.",
    )
    @click.option("--agent", default="", help="The name or id of an agent.")
    @click.option("-n", "--namespace", default="", help="One namespace.")
    @click.option(
        "--object",
        "pattern",
        type=_Object(),
        metavar="OBJECT",
        help="RESOURCE[/SUBRESOURCE][:[NAMESPACE/]NAME], such as pods/exec:prod/web-0.",
    )
    @click.option(
        "--action",
        default="",
        help="An action such as kubernetes.request, or the beginning of one and *.",
    )
    @click.option("--denied", is_flag=True, help="Only refused requests.")
    @click.option(
        "--since",
        type=_Time(),
        default=None,
        metavar="TIME",
        help="The earliest time, such as 2h (ago) or 2026-05-01T12:00:00+00:00.",
    )
    @click.option(
        "--until", type=_Time(), default=None, metavar="TIME", help="The latest time."
    )
    @wraps(function)
    def run(
        *arguments: Any,
        user: str,
        agent: str,
        namespace: str,
        pattern: ObjectPattern | None,
        action: str,
        denied: bool,
        since: str | None,
        until: str | None,
        **rest: Any,
    ) -> Any:
        query = AuditQuery(
            user=user,
            agent=agent,
            namespace=namespace,
            object=pattern,
            action=action,
            denied=denied,
            since=since or "",
            until=until or "",
        )
        return function(*arguments, query=query, **rest)

    return cast("_F", run)


@command(audit, "search")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_query_options
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=LIMIT,
    show_default=True,
    help="Maximum number of events.",
)
@click.option(
    "--cluster-log",
    "cluster_logs",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Print the events of a cluster's own audit log, which kas has stored, with "
    "their credentials; may be repeated.",
)
def _search(
    ctl: Ctl,
    files: Sequence[Path],
    query: AuditQuery,
    limit: int,
    cluster_logs: Sequence[Path],
) -> None:
    """
    Print events of an audit log, oldest first.

    FILES are the files of the log, in any order; they may be compressed with gzip.  The
    exit status is 3 if events are missing because a file cannot be read.  With --output
    json, each line is a line of the log.
    """
    if cluster_logs:
        _search_clusters(ctl, files, query, limit, cluster_logs)
        return
    count = 0

    def show(found: Found) -> None:
        nonlocal count
        if count == limit:
            raise _Ended
        count += 1
        _print(ctl, found)

    try:
        is_partial = _each(files, query, show)
    except _Ended:
        click.echo(f"stopped after {limit} events; see --limit and --since", err=True)
        return
    if is_partial:
        raise SystemExit(PARTIAL)


def _search_clusters(
    ctl: Ctl,
    files: Sequence[Path],
    query: AuditQuery,
    limit: int,
    cluster_logs: Sequence[Path],
) -> None:
    """Print the events of clusters, joined with the log of kas."""
    log = ClusterLog(query)
    is_partial = False
    for paths, use in ((cluster_logs, log.add), (files, log.join)):
        for path in paths:
            try:
                with open_log(path) as file:
                    use(lines_of(file))
            except FileNotFoundError:
                raise
            except OSError as error:
                is_partial = True
                text = printable(f"events are missing: {in_words(error)}")
                click.echo(text, err=True)
            except TooManyEvents as error:
                raise ConfigurationError([str(error)]) from None
    for count, found in enumerate(log.found()):
        if count == limit:
            text = f"stopped after {limit} events; see --limit and --since"
            click.echo(text, err=True)
            return
        _print(ctl, found)
    if is_partial:
        raise SystemExit(PARTIAL)


def _each(
    files: Sequence[Path], query: AuditQuery, use: Callable[[Found], object]
) -> bool:
    """
    Call *use* with each matching event, oldest first; return whether events are missing
    because a file cannot be read.
    """
    is_partial = False

    def skip(path: Path, error: OSError) -> None:
        nonlocal is_partial
        if isinstance(error, FileNotFoundError):
            raise error
        is_partial = True
        click.echo(printable(f"events are missing: {in_words(error)}"), err=True)

    with in_order(files, skip) as logs:
        for one in logs:
            try:
                for found in query.find(lines_of(one.file)):
                    use(found)
            except BrokenPipeError:
                raise
            except OSError as error:
                skip(one.path, error)
    return is_partial


@command(audit, "hold")
@click.option("--reason", required=True, help="Why the events are kept.")
@click.option(
    "--for",
    "duration",
    type=DURATION,
    default=None,
    metavar="DURATION",
    help="Time until the hold ends, such as 90d  [default: it does not end].",
)
@click.option(
    "--user",
    default="",
    help="Keep events of a credential (user:alice), its name, or an operator.",
)
@click.option("--agent", default="", help="Keep events of an agent, by name or id.")
@click.option(
    "--since",
    type=_Time(),
    default=None,
    metavar="TIME",
    help="Keep events from this time on.",
)
@click.option(
    "--until",
    type=_Time(),
    default=None,
    metavar="TIME",
    help="Keep events before this time.",
)
def _hold(
    ctl: Ctl,
    reason: str,
    duration: timedelta | None,
    user: str,
    agent: str,
    since: str | None,
    until: str | None,
) -> None:
    """
    Keep events of the audit log, whatever observability.audit.keep says.

    Without a selector, kas removes no file.  With one, kas removes no file with such an
    event, and no newer file.
    """
    now = time.time()
    hold = Hold(
        id=new_hold_id(),
        reason=reason,
        operator=operator_name(),
        created=rfc3339(now),
        expires="" if duration is None else rfc3339(now + duration.total_seconds()),
        user=user,
        agent=agent,
        since=since or "",
        until=until or "",
    )
    details = {name: value for name, value in attrs.asdict(hold).items() if value}
    for name in ("id", "created", "operator"):
        details.pop(name)
    with ctl.recording("audit.hold", {"hold": hold.id, **details}):
        hold = Holds(ctl.existing()).add(hold, rfc3339(now))
    ctl.result(attrs.asdict(hold), f"hold {hold.id} is in effect")


@command(audit, "holds")
def _holds(ctl: Ctl) -> None:
    """Print the holds of the audit log."""
    now = rfc3339(time.time())
    holds = [one for one in Holds(ctl.existing()).read() if not one.is_over(now)]
    rows = [
        [
            printable(text or "-")
            for text in (one.id, one.expires[:19], one.user, one.agent, one.reason)
        ]
        for one in holds
    ]
    content = [attrs.asdict(one) for one in holds]
    ctl.table(content, ["ID", "EXPIRES", "USER", "AGENT", "REASON"], rows)


@command(audit, "release")
@click.argument("hold_id", metavar="ID")
def _release(ctl: Ctl, hold_id: str) -> None:
    """End a hold of the audit log, so that kas may remove the events."""
    holds = Holds(ctl.existing())
    hold = next((one for one in holds.read() if one.id == hold_id), None)
    if hold is None:
        raise ConfigurationError(
            [f"hold {hold_id} does not exist; 'kasctl audit holds' prints all"]
        )
    with ctl.recording("audit.release", {"hold": hold.id, "reason": hold.reason}):
        holds.remove(hold_id)
    ctl.result(attrs.asdict(hold), f"hold {hold.id} has ended")


@command(audit, "export")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_query_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "syslog", "csv"]),
    default="jsonl",
    show_default=True,
    help="The stored lines, messages of RFC 5424, or a table.",
)
def _export(ctl: Ctl, files: Sequence[Path], query: AuditQuery, form: str) -> None:
    """
    Write events of an audit log to standard output, for other programs.

    FILES are as in 'search', and so is the exit status.  The output has one line for
    each event, in the order of the log.
    """
    host = socket.gethostname()

    def row(found: Found) -> bytes:
        if form == "csv":
            return csv_rows([csv_row(found.event)]).encode("utf-8", "replace")
        if form == "syslog":
            return syslog_message(found.line, found.event, host) + b"\n"
        return found.line + b"\n"

    with click.open_file("-", "wb") as stream:
        if form == "csv":
            stream.write(csv_rows([COLUMNS]).encode())
        is_partial = _each(files, query, lambda found: stream.write(row(found)))
    if is_partial:
        raise SystemExit(PARTIAL)


@command(audit, "query")
@_query_options
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=LIMIT),
    default=1000,
    show_default=True,
    help="Maximum number of events.",
)
@callee_options
def _query(ctl: Ctl, callee: Callee, query: AuditQuery, limit: int) -> None:
    """
    Print the newest events in the audit logs of all kas, oldest first.

    A kas searches for at most 10 seconds.  The exit status is 3 if events of a kas are
    missing.  With --output json, each line is a line of a log.
    """
    request: dict[str, Any] = {
        "user": query.user,
        "agent": query.agent,
        "namespace": query.namespace,
        "object": "" if query.object is None else str(query.object),
        "action": query.action,
        "denied": query.denied,
        "since": query.since,
        "until": query.until,
        "limit": limit,
    }
    answer = callee.call(_SEARCH, request, TIMEOUT)
    lines = [one.encode() for one in answer.get("lines", [])]
    for found in query.find(lines):
        _print(ctl, found)
    if answer.get("isPartial"):
        text = "older events are left out; see --limit and --since"
        click.echo(text, err=True)
    silent = answer.get("silent", [])
    for one in silent:
        text = f"{one.get('address')}: {one.get('reason')}"
        click.echo(printable(f"events are missing: {text}"), err=True)
    if silent:
        raise SystemExit(PARTIAL)


@command(audit, "tail")
@click.argument("file", type=click.Path(path_type=Path))
@_query_options
@click.option(
    "--lines",
    type=click.IntRange(min=0, max=LIMIT),
    default=10,
    show_default=True,
    help="Number of events before the new ones.",
)
@click.option("--once", is_flag=True, help="Do not wait for new events.")
def _tail(ctl: Ctl, file: Path, query: AuditQuery, lines: int, once: bool) -> None:
    """
    Print the last events of an audit log, and then each new event, until Ctrl-C.

    FILE is the file that kas writes.  The command continues with the new file after
    a rotation.
    """
    last: deque[Found] = deque(maxlen=lines)
    live = False

    def at_end() -> None:
        nonlocal live
        if not live:
            live = True
            while last:
                _print(ctl, last.popleft())
        if once:
            raise _Ended
        time.sleep(TAIL_PAUSE)

    with suppress(_Ended, KeyboardInterrupt):
        for found in query.find(follow(file, at_end)):
            if live:
                _print(ctl, found)
            else:
                last.append(found)


class _Ended(Exception):
    """Signal that a file has been read."""


def _print(ctl: Ctl, found: Found) -> None:
    text = found.line.decode("utf-8", "replace") if ctl.as_json else str(found)
    click.echo(text if ctl.as_json else printable(text))


def _report(
    ctl: Ctl,
    files: Sequence[Path],
    key: str | None,
    checkpoints: Sequence[Path],
    partial: bool,
) -> LogReport:
    try:
        notes = [_text(path) for path in checkpoints]
        known: list[str] = []
        own: list[str] = []
        if key is None:
            state = ctl.existing()
            public = read_signer(state).key
            known = [note for _, note in LastCheckpoints(state).read()]
            own = LastCheckpoints.of_files(state, files)
        else:
            public = NoteKey.parse(key if "+" in key else _text(Path(key)))
        verifier = Verifier(public, notes, known, partial, own)
    except NoteError as error:
        raise ConfigurationError([f"the key or a checkpoint: {error}"]) from None
    with in_order(files) as logs:
        for one in logs:
            verifier.read(str(one.path), lines_of(one.file))
    report = verifier.finish()
    if key is None and not own and not notes:
        why = (
            "the state directory has no checkpoint of a log with these files; verify "
            "the files where kas writes them, or use --key and --checkpoint"
        )
        finding = LogFinding(Verdict.INCOMPLETE, "", why)
        report = attrs.evolve(report, findings=[*report.findings, finding])
    return report


def _text(path: Path) -> str:
    """
    Return the beginning of a file with a key or a checkpoint.

    :raises OSError: if the file cannot be read.
    :raises NoteError: if the file is not a text.
    """
    with path.open("rb") as file:
        try:
            return file.read(MAX_NOTE + 1).decode()
        except UnicodeDecodeError:
            raise NoteError(f"{path} is not a text in UTF-8") from None


def _texts(report: LogReport, files: int) -> Iterator[str]:
    worst_first = sorted(report.findings, key=lambda one: one.verdict != report.verdict)
    for finding in worst_first[:SHOWN]:
        yield str(finding)
    if len(worst_first) > SHOWN:
        yield f"and {len(worst_first) - SHOWN} more"
    unfinished = [place for one in report.chains for place in one.unfinished]
    for place in unfinished[:SHOWN]:
        yield f"{place}: a request that has not ended"
    if len(unfinished) > SHOWN:
        yield f"and {len(unfinished) - SHOWN} more"
    yield (
        f"{report.verdict.name.lower()}: {counted(report.lines, 'line')} of "
        f"{counted(len(report.chains), 'chain')} in {counted(files, 'file')}"
    )
