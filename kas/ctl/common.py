"""Options of every command, and output for users and for programs."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from kas.ctl.control_client import Hung, ask
from kas.ctl.operator import operator_name
from kas.identity.store import Change, IdentityStore
from kas.state.directory import StateDirectory, locate
from kas.state.process_socket import CONTROL, SUFFIX, path_of
from kas.state.running import Running, look, look_at_leaving
from kas.state.unrecorded import UnrecordedChanges
from tunnel.config import parse_duration, parse_size
from tunnel.errors import ConfigurationError, TunnelError
from tunnel.toolkit.files import in_words

__all__ = [
    "DURATION",
    "EXPIRES",
    "SIZE",
    "Ctl",
    "ca_file_option",
    "command",
    "counted",
    "expires_option",
    "issuer_option",
    "no_token_made",
    "one_of",
    "pid_option",
    "secret_option",
    "shown_time",
    "token_file",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


#: Maximum seconds until kas has an event on disk: kas itself gives up after 5 seconds.
_COMMIT_SECONDS = 8.0


def _begin(path: Path, change: Mapping[str, str]) -> str:
    """
    Have a kas write the first event of a change, and return the event's id.

    :raises ConfigurationError: if the event is not on disk.
    """
    begun = {**change, "stage": "begun"}
    try:
        found = ask(path, "POST", "/changes", begun, _COMMIT_SECONDS)
    except ConfigurationError as error:
        raise ConfigurationError([f"nothing was changed: {error}"]) from None
    return str(found.get("id", ""))


def _ended(change: Mapping[str, str], event_id: str) -> dict[str, str]:
    return {**change, "stage": "ended", "id": event_id}


@attrs.frozen
class Ctl:
    """Values of the options of every command, and methods for output."""

    state_directory: str | None
    as_json: bool

    def path(self) -> Path:
        """Path of the state directory."""
        return locate(self.state_directory, os.environ)

    def state(self) -> StateDirectory:
        """Return the state directory; create it if it does not exist, as kas does."""
        return StateDirectory.open(self.path())

    def existing(self) -> StateDirectory:
        """Return the state directory, which must exist."""
        return StateDirectory.open(self.path(), create=False)

    def running(self, pid: int | None = None) -> Running | None:
        """
        Return the record of the kas that runs with this state directory; None if no kas
        runs.

        :param pid: the process id of one of several kas.
        :raises ConfigurationError: if several kas run, or the selected kas does not
            run.
        """
        found = self.all_running()
        shown = ", ".join(map(str, found)) or "none"
        return one_of({one.pid: one for one in found}, pid, self.path(), shown)

    def all_running(self) -> tuple[Running, ...]:
        """Return the records of all kas that run with this state directory."""
        return look(self.existing()) if self.path().exists() else ()

    def leaving(self) -> tuple[Running, ...]:
        """Return the records of kas that are stopping."""
        return look_at_leaving(self.existing()) if self.path().exists() else ()

    def store(self, *, create: bool = False) -> IdentityStore:
        """
        Return the store of the identity file.

        :param create: whether to create the state directory if it does not exist.
        """
        state = self.state() if create else self.existing()
        return IdentityStore(state, self.now, recording=self._recording_identity)

    def control_socket(self, pid: int | None = None) -> Path:
        """
        Return the control socket of the single running kas, or of the selected one.

        :raises ConfigurationError: if no kas or several kas run; the error lists them.
        """
        state = self.existing()
        alive: dict[int, Path] = {}
        for number, path in state.of_processes(CONTROL, SUFFIX):
            try:
                ask(path, "GET", "/")
                alive[number] = path
            except Hung:
                # Ignore the error, because the next command reports it.
                alive[number] = path
            except ConfigurationError:
                continue  # left by a dead kas
        known = {one.pid: str(one) for one in self.all_running()}
        shown = ", ".join(known.get(one, str(one)) for one in sorted(alive)) or "none"
        chosen = one_of(alive, pid, state.path, shown)
        if chosen is None:
            raise ConfigurationError(
                [
                    f"{state.path}: no kas runs with this state directory; pass "
                    "another with --state-directory"
                ]
            )
        return chosen

    @contextmanager
    def recording(
        self, action: str, details: Mapping[str, str], path: Path | None = None
    ) -> Iterator[None]:
        """
        Have a kas write a change to its audit log, with the user who makes it.

        If kas enforces events of administration, the event is on disk before the body
        begins.  Otherwise the event follows the change, and if it cannot be written,
        the command succeeds with a note to the user.

        :param path: the control socket of the kas; None for any kas that runs with the
            state directory; if no kas runs, the next one records the change.
        :raises ConfigurationError: if the event must be on disk, and cannot be written.
        """
        found = self.all_running()
        chosen = [
            one for one in found if path in (None, path_of(self.existing(), one.pid))
        ]
        # Of several kas, one that enforces the event.
        chosen.sort(key=lambda one: not one.enforces_changes)
        if path is None and chosen:
            path = path_of(self.existing(), chosen[0].pid)
        change = {"action": action, **details, "operator": operator_name()}
        if path is None:
            yield
            self._keep(change)
            return
        event_id = ""
        if chosen and chosen[0].enforces_changes:
            event_id = _begin(path, change)
        try:
            yield
        except BaseException:
            if event_id:
                self._record(path, _ended(change, event_id) | {"failed": "true"})
            raise
        self._record(path, _ended(change, event_id) if event_id else change)

    def _record(self, path: Path, change: Mapping[str, str]) -> None:
        try:
            ask(path, "POST", "/changes", change)
        except ConfigurationError as error:
            self.note(f"the audit log has no entry for this change: {error}")

    def _keep(self, change: Mapping[str, str]) -> None:
        """Let the next kas with the state directory record a change."""
        made = {**change, "made_at": datetime.now(UTC).isoformat()}
        try:
            UnrecordedChanges(self.existing()).add(made)
        except (ConfigurationError, OSError) as error:
            text = "the audit log will have no entry for this change"
            self.note(f"{text}: {in_words(error)}")

    def _recording_identity(self, change: Change) -> AbstractContextManager[None]:
        return self.recording(change.action, {"name": change.name, **change.details})

    @staticmethod
    def now() -> datetime:
        """
        Return the time of day in whole seconds, which is the precision of stored times.
        """
        return datetime.now(UTC).replace(microsecond=0)

    def result(self, content: object, text: str) -> None:
        """
        Print the result of a command, as JSON or as text.

        :raises ConfigurationError: if standard output cannot be written.
        :raises BrokenPipeError: if the reader of standard output has ended.
        """
        if sys.stdout is None:
            # Report the error: the descriptor was closed when kasctl started, and click
            # would silently drop the text.
            raise ConfigurationError(["cannot write to standard output (closed)"])
        try:
            click.echo(json.dumps(content, indent=2) if self.as_json else text)
        except OSError as error:
            _discard_output()
            if isinstance(error, BrokenPipeError):
                raise
            raise ConfigurationError(
                [f"cannot write to standard output ({error.strerror})"]
            ) from None

    def note(self, text: str) -> None:
        """
        Print advice for users to standard error, so that it does not disturb programs
        that read the output.
        """
        if not self.as_json:
            click.echo(text, err=True)

    def table(self, content: object, head: Sequence[str], rows: Any) -> None:
        """Print a list: as JSON, or as a table for users."""
        lines = [tuple(head), *(tuple(str(cell) for cell in row) for row in rows)]
        widths = [max(len(cell) for cell in column) for column in zip(*lines)]  # noqa: B905
        text = "\n".join(
            "  ".join(
                cell.ljust(width) for cell, width in zip(line, widths, strict=True)
            ).rstrip()
            for line in lines
        )
        self.result(content, text)


def one_of(
    found: Mapping[int, _T], pid: int | None, path: Path, shown: str
) -> _T | None:
    """
    Return the kas that the user selected, or the only kas; None if no kas runs.

    :param found: the kas, by process id.
    :param pid: the process id from an option.
    :param path: the state directory that these kas share.
    :param shown: a list of all these kas, for errors.
    :raises ConfigurationError: if several kas run and none is selected, or the selected
        kas does not run.
    """
    if pid is not None and pid not in found:
        raise ConfigurationError(
            [f"{path}: no kas runs here as process {pid}; running: {shown}"]
        )
    if pid is None and len(found) > 1:
        raise ConfigurationError(
            [
                (
                    f"{path}: several kas use this state directory: {shown}; select "
                    "one with --pid"
                )
            ]
        )
    return found[pid] if pid is not None else next(iter(found.values()), None)


def command(group: click.Group, name: str) -> Callable[[Callable[..., None]], Any]:
    """
    Declare a command whose first argument is a `Ctl`.

    Expected exceptions are printed as messages, without a traceback, and cause the exit
    status 1.
    """

    def declare(function: Callable[..., None]) -> Any:
        @click.option(
            "--state-directory",
            metavar="DIR",
            help="State directory of kas  [default: $STATE_DIRECTORY, "
            "$XDG_STATE_HOME/kas or ~/.local/state/kas]",
        )
        @click.option(
            "--output",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="Format of the output.",
        )
        @functools.wraps(function)
        def run(state_directory: str | None, output: str, **rest: Any) -> None:
            ctl = Ctl(state_directory, output == "json")
            try:
                function(ctl, **rest)
            except BrokenPipeError:
                # The program that reads the output needs no more of it, as in `kasctl
                # agent list | head -1`.
                raise SystemExit(1) from None
            except (TunnelError, OSError) as error:
                problems = getattr(error, "problems", (in_words(error),))
                if ctl.as_json and sys.stdout is not None:
                    click.echo(json.dumps({"problems": list(problems)}, indent=2))
                else:
                    for problem in problems:
                        click.echo(problem, err=True)
                raise SystemExit(1) from None

        # Use the whole first paragraph, so that summaries in lists of commands are
        # whole sentences.
        summary = (function.__doc__ or "").strip().partition("\n\n")[0]
        whole = " ".join(summary.split())
        return group.command(name, short_help=whole)(run)

    return declare


def _discard_output() -> None:
    """Discard pending output: Python would try to write it again when it exits."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # not a file of this process, as in tests
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class _Duration(click.ParamType[timedelta]):
    name = "time"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> timedelta:
        """Convert seconds, minutes, hours or days, as in the configuration file."""
        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(seconds=parse_duration(value))
        except ValueError as error:
            hint = f" ({error})" if str(error) else ""
            self.fail(f"{value!r} is not a time such as 90s, 8h or 30d{hint}")


DURATION = _Duration()


class _Size(click.ParamType[int]):
    """Type of options for a size in bytes, which `tunnel.config` parses."""

    name = "size"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Return the number of bytes in a text such as ``64KiB``."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError:
            self.fail(f"{value!r} is not a size such as 64KiB or 1MiB")


SIZE = _Size()


class _Lifetime(_Duration):
    name = "time"

    def convert(  # type: ignore[override]
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> timedelta | None:
        """Convert a duration, or ``never`` to None."""
        if value is None or value == "never":
            return None
        found = super().convert(value, param, ctx)
        if found < timedelta(seconds=1):
            # The identity file stores whole seconds.
            self.fail(
                f"a token that is valid for {value} would be useless; write 1s or more"
            )
        return found


#: Default lifetime of a user's token: a forgotten token must not give access to
#: clusters for years.
EXPIRES = "90d"

expires_option = click.option(
    "--expires",
    type=_Lifetime(),
    default=EXPIRES,
    show_default=True,
    help="Lifetime of the token, such as 8h or 30d; 'never' for no expiry.",
)


def shown_time(time: datetime) -> str:
    """Return a time of day as text for users; programs get times in ISO 8601."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def counted(number: int, noun: str) -> str:
    """Return a number with a noun: ``1 agent``, ``2 agents``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


#: Maximum characters of a peer's text that kasctl shows: about a page.
_SHOWN = 2000


def printable(text: str) -> str:
    """Return a peer's text without characters that affect the terminal."""
    cut = text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in cut
    )


pid_option = click.option(
    "--pid",
    type=int,
    help="The process id of the kas, if several use the state directory.",
)

issuer_option = click.option(
    "--issuer",
    default="gitlab",
    show_default=True,
    help="The issuer that the external API expects.",
)


def secret_option(required: bool = False) -> Callable[[_F], _F]:
    """
    Add the option for the file with the secret that signs calls of the external API.
    """
    return click.option(
        "--secret-file",
        type=click.Path(dir_okay=False, path_type=Path),
        required=required,
        help="Secret of the external API, as in api.listen.authentication_secret_file.",
    )


ca_file_option = click.option(
    "--ca-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="PEM certificates of the CAs that sign the external API's certificate.",
)

token_file = click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the token to this file (mode 0600) instead of printing it.",
)


@contextmanager
def no_token_made() -> Iterator[None]:
    """Append to errors of standard output that no token was made."""
    try:
        yield
    except BrokenPipeError:
        message = "cannot write to standard output (Broken pipe); no token was made"
        raise ConfigurationError([message]) from None
    except ConfigurationError as error:
        raise ConfigurationError([f"{error}; no token was made"]) from None
