"""``kasctl audit``: verify the audit log of kas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click

from kas.audit.chain import rfc3339
from kas.audit.files import in_order, lines_of, open_log
from kas.audit.key import read_signer
from kas.audit.last import LastCheckpoints
from kas.audit.notes import MAX_NOTE, NoteError, NoteKey
from kas.audit.verify import LogReport, Verdict, Verifier
from kas.ctl.common import Ctl, command, counted, printable
from tunnel.errors import ConfigurationError, TunnelError
from tunnel.toolkit.files import in_words

__all__ = ["declare"]

#: Maximum number of findings, and of requests without an end, that are printed.
SHOWN = 20


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    group.add_command(audit)


@click.group()
def audit() -> None:
    """Verify the audit log of kas."""


@command(audit, "key")
def _key(ctl: Ctl) -> None:
    """
    Print the public key with which anyone can verify the audit log.

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
def _verify(
    ctl: Ctl, files: Sequence[Path], key: str | None, checkpoints: Sequence[Path]
) -> None:
    """
    Find changed, missing and inserted lines of an audit log.

    FILES are all files of the log, in any order; names with .gz are compressed.  The
    exit status is 0 if the log is good, 1 if it was tampered with, and 2 if nothing is
    wrong but the files do not prove that nothing is missing, or cannot be read.
    """
    try:
        report = _report(ctl, files, key, checkpoints)
    except (TunnelError, OSError, EOFError) as error:
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


def _report(
    ctl: Ctl, files: Sequence[Path], key: str | None, checkpoints: Sequence[Path]
) -> LogReport:
    try:
        notes = [("", path.read_text()[: MAX_NOTE + 1]) for path in checkpoints]
        if key is None:
            state = ctl.existing()
            public = read_signer(state).key
            for time, note in LastCheckpoints(state).read():
                notes.append((rfc3339(time), note))
        else:
            text = key if "+" in key else Path(key).read_text()
            public = NoteKey.parse(text)
        verifier = Verifier(public, notes)
    except NoteError as error:
        raise ConfigurationError([f"the key or a checkpoint: {error}"]) from None
    for path in in_order(files):
        with closing(open_log(path)) as file:
            verifier.read(str(path), lines_of(file))
    return verifier.finish()


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
