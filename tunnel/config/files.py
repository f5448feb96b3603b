"""Reads a file, or its text, as an instance of a schema."""

from __future__ import annotations

import contextlib
import typing
from pathlib import Path
from typing import Literal, TypeVar

from tunnel.config.nodes import MAX_TEXT, Mapping, Mark, Node, Unreadable, parse
from tunnel.config.problems import Problem
from tunnel.config.reader import Reader, Remark, camel_case
from tunnel.errors import ConfigurationError

__all__ = ["place_in", "place_of", "read", "read_file"]

T = TypeVar("T")


def read(
    text: str,
    file: str,
    schema: type[T],
    *,
    unknown_keys: Literal["refuse", "skip"] = "refuse",
    remark: Remark | None = None,
) -> T:
    """
    Read *text* as an instance of *schema*.

    A schema with ``AS_JSON = True`` is read as GitLab reads its files, see
    `tunnel.config.nodes.parse`; keys may then be in camelCase, too.  A schema with
    ``REFUSE_EMPTY = True`` has no keys without a value, and no empty lists.

    :param file: name of the text in messages; relative paths start in its folder.
    :param unknown_keys: ``skip`` is for formats of other programs.
    :param remark: called with each remark that is not an error, one line each;
        `Section` objects in *text* call it, too, when they are read.
    :raises ConfigurationError: with all errors; a `PartlyRead`, unless the text could
        not even be parsed.
    """
    as_json = getattr(schema, "AS_JSON", False)
    try:
        node = parse(text, file, as_json=as_json)
    except Unreadable as error:
        raise ConfigurationError(
            [str(Problem(error.mark, "", error.message))]
        ) from None
    base = Path(file).absolute().parent
    reader = Reader(
        base,
        unknown_keys == "refuse",
        remark,
        as_json,
        getattr(schema, "REFUSE_EMPTY", False),
    )
    value = reader.convert(node, schema, "")
    reader.raise_problems()
    return typing.cast(T, value)


def read_file(
    path: str | Path,
    schema: type[T],
    *,
    unknown_keys: Literal["refuse", "skip"] = "refuse",
    remark: Remark | None = None,
    copy: str | Path | None = None,
    max_bytes: int | None = None,
) -> T:
    """
    Read the content of a file as `read` does; a file that cannot be opened is an error.

    :param copy: the file to open instead of *path*; errors still name *path*.
    :param max_bytes: the maximum size of the file; None for the parser's own limit.
    """
    try:
        with open(copy or path, "rb") as source:
            # One byte more than allowed, to detect a larger file
            data = source.read(4 * MAX_TEXT + 1)
    except OSError as error:
        what = error.strerror or type(error).__name__
        message = f"{path} cannot be read ({what}); correct the path or its permissions"
        raise ConfigurationError([message]) from None
    if max_bytes is not None and len(data) > max_bytes:
        raise ConfigurationError([f"{path} has more than {max_bytes} bytes"])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        message = f"{path}:{line}:{column}: not UTF-8; save the file in that encoding"
        raise ConfigurationError([message]) from None
    return read(text, str(path), schema, unknown_keys=unknown_keys, remark=remark)


def place_of(path: str | Path, key: str) -> Mark:
    """
    Return the position of a key in a file that was read before; line 0 if it is
    missing.

    :param key: with dots, as in messages.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return place_in(Path(path).read_text("utf-8-sig"), str(path), key)
    return Mark(str(path))


def place_in(text: str, file: str, key: str, *, as_json: bool = False) -> Mark:
    """
    Return the position of a key in *text*; line 0 if it is missing.

    :param key: with dots, as in messages.
    :param as_json: see `tunnel.config.nodes.parse`; the key may be in camelCase there.
    """
    node: Node | None = None
    with contextlib.suppress(Unreadable):
        node = parse(text, file, as_json=as_json)
    mark = Mark(file)
    for part in key.split("."):
        names = {part, camel_case(part)} if as_json else {part}
        entries = node.entries if isinstance(node, Mapping) else ()
        found = [(name.mark, value) for name, value in entries if name.text in names]
        if not found:
            return Mark(file)
        mark, node = found[0]
    return mark
