"""Search for events in audit logs, line by line."""

from __future__ import annotations

import glob
import json
import re
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from kas.audit.chain import CHAINS, CHECKPOINT, CONTINUE
from kas.audit.files import in_order, lines_of
from kas.audit.fragments import MARK

__all__ = [
    "AuditQuery",
    "Found",
    "Newest",
    "ObjectPattern",
    "is_denied",
    "is_event",
    "newest",
    "pieces_of",
]

#: Maximum bytes of the lines that a search keeps: the response of one kas to another
#: one must fit into a message of 4 MiB, also with the overhead of JSON.
MAX_BYTES = 1024 * 1024

#: Maximum seconds of a search in the files of one kas, in which it reads about a
#: gigabyte.
MAX_SECONDS = 10.0

#: Maximum number of files that a search opens, the newest ones: the descriptors of kas
#: are for its clients.
MAX_FILES = 200

#: Lines that only matter for verification.
_HIDDEN = frozenset((CHAINS, CHECKPOINT, CONTINUE))

_OBJECT = re.compile(
    r"(?P<resource>[a-z0-9.-]+)?(?:/(?P<subresource>[a-z0-9.-]+))?"
    r"(?::(?:(?P<namespace>[^/]+)/)?(?P<name>[^/]+))?"
)


@attrs.frozen
class ObjectPattern:
    """The objects that a search looks for; an empty part matches everything."""

    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> ObjectPattern:
        """
        Parse ``RESOURCE[/SUBRESOURCE][:[NAMESPACE/]NAME]``.

        :raises ValueError: if *text* has another form.
        """
        found = _OBJECT.fullmatch(text)
        if found is None or not text:
            raise ValueError(
                f"'{text}' is not RESOURCE[/SUBRESOURCE][:[NAMESPACE/]NAME], such as "
                "pods/exec:prod/web-0"
            )
        return cls(**{name: value or "" for name, value in found.groupdict().items()})

    def __str__(self) -> str:
        kind = self.resource + (f"/{self.subresource}" if self.subresource else "")
        if not self.name:
            return kind
        space = f"{self.namespace}/" if self.namespace else ""
        return f"{kind}:{space}{self.name}"

    def matches(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event is about such an object."""
        return all(
            not wanted or event.get(name, "") == wanted
            for name, wanted in attrs.asdict(self).items()
        )


@attrs.frozen(kw_only=True)
class AuditQuery:
    """
    The events that a search looks for; an empty attribute matches everything.

    :ivar user: a credential such as ``user:alice``, the part after the colon, or the
        operator of `kasctl`.
    :ivar agent: the name or the id of an agent.
    :ivar action: an action, or the beginning of one and an asterisk.
    :ivar denied: whether only refused requests match.
    :ivar since: the earliest time, as in lines.
    :ivar until: the time before which an event must be.
    """

    user: str = ""
    agent: str = ""
    namespace: str = ""
    object: ObjectPattern | None = None
    action: str = ""
    denied: bool = False
    since: str = ""
    until: str = ""

    def matches(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event is wanted."""
        action, time = event.get("action", ""), event.get("time", "")
        if self.action:
            if self.action.endswith("*"):
                if not action.startswith(self.action[:-1]):
                    return False
            elif action != self.action:
                return False
        elif action in _HIDDEN:
            return False
        return (
            (not self.since or time >= self.since)
            and (not self.until or time < self.until)
            and (not self.user or self.user in _users(event))
            and (
                not self.agent
                or self.agent in (event.get("agent"), event.get("agent_id"))
            )
            and (not self.namespace or event.get("namespace") == self.namespace)
            and (self.object is None or self.object.matches(event))
            and (not self.denied or is_denied(event))
        )

    @property
    def _needles(self) -> tuple[bytes, ...]:
        """Bytes that each matching line contains."""
        pattern = self.object or ObjectPattern()
        texts = (
            *(self.user, self.agent, self.namespace, self.action.rstrip("*")),
            *attrs.astuple(pattern),
        )
        # Other texts may be written in several ways.
        return tuple(
            one.encode()
            for one in texts
            if one.isascii() and re.fullmatch(r"[\w.:@-]+", one)
        )

    def find(self, lines: Iterable[bytes]) -> Iterator[Found]:
        """
        Yield the matching events; lines that are not events are skipped.

        :param lines: each with its line feed.
        """
        needles = self._needles
        for line in lines:
            # The comparison excludes most lines, and costs less than the JSON.
            if not all(one in line for one in needles):
                continue
            # The disk may have been full, for another worker, too.
            for piece in pieces_of(line):
                try:
                    event = json.loads(piece)
                except (ValueError, RecursionError):
                    continue
                if is_event(event) and self.matches(event):
                    yield Found(piece.rstrip(b"\n"), event)


def pieces_of(line: bytes) -> Iterator[bytes]:
    """Yield the parts of a line that may be lines of several workers."""
    start = 0
    while (end := line.find(MARK, start + 1)) > 0:
        yield line[start:end]
        start = end
    yield line[start:]


def is_event(event: Any) -> bool:
    """Tell whether a value has the form of an event; anyone may write to the file."""
    return isinstance(event, dict) and all(
        isinstance(event.get(one, ""), str) for one in ("action", "time")
    )


@attrs.frozen
class Found:
    """
    An event that was found.

    :ivar line: the bytes of its line, without the line feed.
    """

    line: bytes
    event: Mapping[str, Any]

    @property
    def who(self) -> str:
        """The credential, the operator of kasctl, or the client's address."""
        event = self.event
        return str(
            event.get("credential")
            or event.get("operator")
            or event.get("client")
            or "-"
        )

    @property
    def what(self) -> str:
        """The action, or the verb and the object of a request."""
        event = self.event
        if "verb" not in event:
            words = (event.get("action", ""), event.get("name", ""))
            return " ".join(str(one) for one in words if one)
        kind = str(event.get("resource", ""))
        if event.get("subresource"):
            kind += f"/{event['subresource']}"
        place = "/".join(
            str(event[one]) for one in ("namespace", "name") if event.get(one)
        )
        target = kind or str(event.get("path", ""))
        return " ".join(one for one in (str(event["verb"]), target, place) if one)

    def __str__(self) -> str:
        event = self.event
        words = [
            str(event.get("time", ""))[:19] + "Z",
            self.who,
            str(event.get("agent") or "-"),
            self.what,
            str(event.get("outcome") or event.get("stage") or "-"),
        ]
        more = [str(event["reason"])] if event.get("reason") else []
        if "exit_code" in event:
            more.append(f"exit code {event['exit_code']}")
        if more:
            words.append(f"({', '.join(more)})")
        return "  ".join(words)


def is_denied(event: Mapping[str, Any]) -> bool:
    """Tell whether kas or the API server refused a request."""
    return event.get("stage") == "denied" or event.get("outcome") in ("401", "403")


def _users(event: Mapping[str, Any]) -> tuple[str, ...]:
    credential = str(event.get("credential", ""))
    return (
        credential,
        credential.partition(":")[2],
        str(event.get("operator", "")),
        # Only events of clusters have it: the user that the API server sees.
        str(event.get("user", "")),
    )


@attrs.frozen
class Newest:
    """
    The newest events that a search found, oldest first.

    :ivar is_partial: whether older events match, were not read in time, or are in a
        file that cannot be read.
    """

    found: Sequence[Found]
    is_partial: bool


def newest(
    path: Path, query: AuditQuery, limit: int, seconds: Callable[[], float]
) -> Newest:
    """
    Search in a log and in its rotated files; this function blocks.

    :param path: the file that kas writes.
    :param limit: maximum number of events.
    :param seconds: returns the time of a clock; the search takes at most
        `MAX_SECONDS`.
    :raises OSError: if the file that kas writes cannot be read.
    """
    deadline = seconds() + MAX_SECONDS
    kept: deque[Found] = deque()
    size, is_full = 0, False
    paths, is_partial = _newest_files(path)

    def skip(one: Path, error: OSError) -> None:
        nonlocal is_partial
        if one == path:
            raise error
        is_partial = True

    with in_order(paths, skip) as files:
        # Read the newest file first, because the time may not suffice for all files.
        for one in reversed(files):
            newer, kept = kept, deque()
            room = limit - len(newer)
            if room <= 0 or is_full:
                kept = newer
                is_full = True
                break
            try:
                for found in query.find(_until(deadline, seconds, lines_of(one.file))):
                    kept.append(found)
                    size += len(found.line)
                    while len(kept) > room or (size > MAX_BYTES and kept):
                        size -= len(kept.popleft().line)
                        is_full = True
            except OSError as error:
                skip(one.path, error)
            is_full = is_full or seconds() >= deadline
            kept.extend(newer)
    return Newest(list(kept), is_partial or is_full)


def _newest_files(path: Path) -> tuple[list[Path], bool]:
    """
    Return the files of a log, at most `MAX_FILES`, and whether older ones are left out.
    """
    found = [(float("inf"), path)]
    for one in path.parent.glob(f"{glob.escape(path.name)}*"):
        with suppress(OSError):
            status = one.stat()
            if one != path and stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime, one))
    found.sort(reverse=True)
    return [one for _, one in found[:MAX_FILES]], len(found) > MAX_FILES


def _until(
    deadline: float, seconds: Callable[[], float], lines: Iterable[bytes]
) -> Iterator[bytes]:
    """Yield lines until *deadline*."""
    for number, line in enumerate(lines):
        if number % 1000 == 0 and seconds() >= deadline:
            return
        yield line
