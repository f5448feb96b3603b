"""Files of audit logs, also after a rotation."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, cast

__all__ = ["MAX_LINE", "follow", "in_order", "lines_of", "open_log"]

#: Maximum bytes of a line: kas writes at most 16 KiB.  A longer line is read as several
#: lines.
MAX_LINE = 64 * 1024

#: Maximum number of lines that are read to find the time of a file: lines may be
#: incomplete.
MAX_HEAD = 100


def open_log(path: Path) -> IO[bytes]:
    """
    Open a file of a log, which logrotate may have compressed.

    :raises OSError: if the file cannot be read.
    """
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb", buffering=1024 * 1024)


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, each of at most `MAX_LINE` bytes."""
    read = file.readline
    while line := read(MAX_LINE):
        yield line


def in_order(paths: Iterable[Path]) -> list[Path]:
    """
    Return the files, each of them once, in the order in which they were written: by the
    time of their first line.

    :raises OSError: if a file cannot be read.
    """
    found = {path.resolve(): path for path in paths}
    return sorted(found.values(), key=_first_time)


def _first_time(path: Path) -> str:
    with closing(open_log(path)) as file:
        for number, line in enumerate(lines_of(file)):
            if number == MAX_HEAD:
                break
            try:
                time = json.loads(line)["time"]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if isinstance(time, str):
                return time
    return ""


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
