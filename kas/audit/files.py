"""Files of audit logs, also after a rotation."""

from __future__ import annotations

import errno
import gzip
import heapq
import io
import itertools
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

import attrs

__all__ = ["MAX_LINE", "LogFile", "follow", "in_order", "lines_of", "open_log"]

#: Maximum bytes of a line: kas writes at most 16 KiB.  A longer line is read as several
#: lines.
MAX_LINE = 64 * 1024

#: Maximum number of lines, and of bytes at the end, that are read to find the place of
#: a file among the others: lines may be incomplete.
MAX_HEAD, MAX_TAIL = 100, 64 * 1024

#: Maximum number of attempts to open all files while another program renames them.
MAX_ATTEMPTS = 5

#: Bytes of a buffer: many files may be open.
_BUFFER = 128 * 1024

_GZIP = b"\x1f\x8b"

#: Part of the lines that name other chains.
_BEFORE = b'"before":['

#: The beginnings of files of other programs that compress.
_UNREADABLE = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "lz4",
}


@contextmanager
def open_log(path: Path) -> Iterator[IO[bytes]]:
    """
    Open a file of a log, which logrotate may have compressed.

    :raises OSError: if the file cannot be read.
    """
    with io.BufferedReader(io.FileIO(path), _BUFFER) as raw:
        head = raw.peek(8)
        for magic, name in _UNREADABLE.items():
            if head.startswith(magic):
                why = f"is compressed with {name}; decompress it before"
                raise OSError(errno.EINVAL, why, str(path))
        if head.startswith(_GZIP):
            with gzip.GzipFile(str(path), "rb", fileobj=raw) as file:
                yield cast("IO[bytes]", file)
        else:
            yield raw


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """
    Yield the lines of a file, each of at most `MAX_LINE` bytes.

    :raises OSError: if the file cannot be read, also if it was compressed and is
        damaged.
    """
    read = file.readline
    try:
        while line := read(MAX_LINE):
            yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        why = "the compressed data is damaged or incomplete"
        raise OSError(errno.EIO, why, getattr(file, "name", None)) from None


@attrs.frozen
class LogFile:
    """A file of a log, which stays open although another program may rename it."""

    path: Path
    file: IO[bytes]


def _raise(path: Path, error: OSError) -> None:
    raise error


@contextmanager
def in_order(
    paths: Iterable[Path], skip: Callable[[Path, OSError], None] = _raise
) -> Iterator[Sequence[LogFile]]:
    """
    Open files, each of them once, and return them in the order in which they were
    written.

    The lines of a chain determine the order of two files with the same chain, or with a
    chain whose lines name the other chain; the time of the first line determines it
    otherwise, because the clock may have been set back in between.

    :param skip: called for a file that cannot be read, which is left out.
    :raises OSError: if a file cannot be read.
    """
    paths = list(paths)
    found: list[LogFile] = []
    with ExitStack() as stack:
        for attempt in range(MAX_ATTEMPTS):
            # If files are renamed between two calls, one may be missing.
            is_last = attempt == MAX_ATTEMPTS - 1
            found = stack.enter_context(_opened(paths, skip if is_last else _ignore))
            if is_last or _are_named(paths, found):
                break
            stack.pop_all().close()
        heads = []
        for one in found:
            try:
                heads.append(_head(one))
                one.file.seek(0)
            except OSError as error:
                skip(one.path, error)
        yield _sorted(heads)


def _ignore(path: Path, error: OSError) -> None:
    pass


@contextmanager
def _opened(
    paths: Iterable[Path], skip: Callable[[Path, OSError], None]
) -> Iterator[list[LogFile]]:
    found: dict[tuple[int, int], LogFile] = {}
    with ExitStack() as stack:
        for path in paths:
            try:
                file = stack.enter_context(open_log(path))
            except OSError as error:
                skip(path, error)
                continue
            status = os.fstat(file.fileno())
            found.setdefault((status.st_dev, status.st_ino), LogFile(path, file))
        yield list(found.values())


def _are_named(paths: Iterable[Path], found: Iterable[LogFile]) -> bool:
    """Tell whether the paths still name exactly the files that are open."""
    named = set()
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            return False
        named.add((status.st_dev, status.st_ino))
    opened = {(one.st_dev, one.st_ino) for one in map(_status, found)}
    return named == opened


def _status(one: LogFile) -> os.stat_result:
    return os.fstat(one.file.fileno())


@attrs.frozen
class _Head:
    """
    What determines the place of a file among the others.

    :ivar time: time of the first line.
    :ivar chains: a number of a line of each chain.
    :ivar named: numbers of lines of other chains, which were written before.
    """

    log: LogFile
    time: str
    chains: Mapping[str, int]
    named: Mapping[str, int]


def _head(log: LogFile) -> _Head:
    """
    Read the beginning and the end of a file.

    :raises OSError: if the file cannot be read.
    """
    file = log.file
    first, chains, named = "", dict[str, int](), dict[str, int]()
    for number, line in enumerate(lines_of(file)):
        if number == MAX_HEAD:
            break
        time, kas, seq = _place_of(line)
        first = first or time
        if kas:
            chains.setdefault(kas, seq)
        if _BEFORE in line:
            for other, size in _named_in(line):
                named.setdefault(other, size)
    if not isinstance(cast("object", file), gzip.GzipFile):
        # A chain that began in this file may continue in the next one.
        file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_TAIL))
        for line in lines_of(file):
            _, kas, seq = _place_of(line)
            if kas:
                chains.setdefault(kas, seq)
    return _Head(log, first, chains, named)


def _named_in(line: bytes) -> Iterator[tuple[str, int]]:
    """Yield the chains that a line names, and their numbers of lines."""
    try:
        for one in json.loads(line)["before"]:
            yield str(one["origin"]).rpartition("/")[2], int(one["size"])
    except (ValueError, LookupError, TypeError, RecursionError):
        # Verification reports the line.
        return


def _place_of(line: bytes) -> tuple[str, str, int]:
    """Return the time, the chain and the number of a line, as far as it has them."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return "", "", 0
    if not isinstance(event, dict):
        return "", "", 0
    time, kas, seq = (event.get(one) for one in ("time", "kas", "seq"))
    if not isinstance(time, str):
        time = ""
    if isinstance(kas, str) and isinstance(seq, int):
        return time, kas, seq
    return time, "", 0


def _sorted(heads: Sequence[_Head]) -> list[LogFile]:
    """Sort files by their chains, and then by their times."""
    chains: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, head in enumerate(heads):
        for kas, seq in head.chains.items():
            chains[kas].append((seq, number))
    later: list[set[int]] = [set() for _ in heads]
    for places in chains.values():
        places.sort()
        for (_, one), (_, other) in itertools.pairwise(places):
            later[one].add(other)
    for number, head in enumerate(heads):
        for kas, size in head.named.items():
            before = [one for seq, one in chains.get(kas, ()) if seq < size]
            if before and kas not in head.chains:
                later[before[-1]].add(number)
    waits = [0] * len(heads)
    for others in later:
        for other in others:
            waits[other] += 1
    # If the lines contradict each other, the times decide.
    queue = [(count > 0, heads[n].time, n) for n, count in enumerate(waits)]
    heapq.heapify(queue)
    done: dict[int, LogFile] = {}
    while queue:
        _, _, number = heapq.heappop(queue)
        if number in done:
            continue
        done[number] = heads[number].log
        for other in later[number]:
            waits[other] -= 1
            if waits[other] == 0:
                heapq.heappush(queue, (False, heads[other].time, other))
    return list(done.values())


def follow(path: Path, wait: Callable[[], object]) -> Iterator[bytes]:
    """
    Yield the lines of a file, and then each new line, also after a rotation.

    :param wait: called when there is no new line; if it raises an exception, the
        generator ends with it.
    :raises OSError: if the file cannot be read at first.
    """
    file = path.open("rb")
    rest = b""
    try:
        while True:
            line = file.readline(MAX_LINE)
            if line:
                rest += line
                if rest.endswith(b"\n") or len(rest) >= MAX_LINE:
                    yield rest
                    rest = b""
                continue
            if _was_replaced(file, path):
                # kas may write to the old file until it reopens the log.
                wait()
                for line in lines_of(file):
                    yield rest + line
                    rest = b""
                file.close()
                file = path.open("rb")
                rest = b""
                continue
            wait()
    finally:
        file.close()


def _was_replaced(file: IO[bytes], path: Path) -> bool:
    """Tell whether the path names another file, or the file was truncated."""
    try:
        now = path.stat()
    except OSError:
        return False
    here = os.fstat(file.fileno())
    return (now.st_dev, now.st_ino) != (here.st_dev, here.st_ino) or (
        here.st_size < file.tell()
    )
