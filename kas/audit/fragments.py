"""
Incomplete lines of audit logs, because a disk was full or a process was killed.

A line of a chain names the incomplete lines before it, see `Torn`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from hashlib import sha256

import attrs

__all__ = ["MARK", "MAX_FRAGMENTS", "Fragments", "Torn"]

#: Maximum number of incomplete lines that are remembered, and of lines that name them.
MAX_FRAGMENTS = 10_000

#: The beginning of each line.  A text in JSON never contains it, because its quotation
#: marks would be escaped.
MARK = b'{"v":1,"seq":'

#: Several beginnings of lines, one after the other: the disk was full for several
#: workers.
_BEGINNINGS = re.compile(
    b"(?:"
    + b"(?:".join(re.escape(MARK[at : at + 1]) for at in range(len(MARK) - 1))
    + b")?" * (len(MARK) - 2)
    + rb")+\Z"
)

#: Digest of an empty line.
_BLANK = sha256().hexdigest()


@attrs.frozen
class Torn:
    """
    The name of an incomplete line, in a line of a chain.

    It excuses one fragment, between the line before of the same chain and this line.

    :ivar digest: SHA-256 of the fragment.
    :ivar after: place of the line before, as a number of lines of all files.
    :ivar at: place of the line that has the name.
    """

    digest: str
    after: int
    at: int


@attrs.frozen
class _Fragment:
    place: str
    at: int
    #: Digests of the text, and of the text without beginnings of other lines after it.
    digests: tuple[str, ...]
    #: Tells whether the fragment may be the last line of its chain.
    is_last: Callable[[], bool]
    #: Whether the fragment may be the beginning of any line.
    is_short: bool


class Fragments:
    """Incomplete lines, and the lines that name them."""

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._found: list[_Fragment] = []
        self._torn: dict[str, list[Torn]] = defaultdict(list)
        self._names = 0

    def add(
        self, text: bytes, place: str, at: int, is_last: Callable[[], bool]
    ) -> bool:
        """
        Remember a fragment; return whether there is room for it.

        :param place: ``file:line``, for a finding.
        :param at: number of lines of all files before it.
        :param is_last: tells, after all files, whether the fragment may be the last
            line of a chain.
        """
        if len(self._found) >= MAX_FRAGMENTS:
            return False
        digests = [sha256(text).hexdigest()]
        tail = _BEGINNINGS.search(text)
        if tail is not None and tail.start():
            digests.append(sha256(text[: tail.start()]).hexdigest())
        is_short = len(text) < self._max_line and (
            not text
            or text.startswith(MARK)
            or (tail is not None and tail.start() == 0)
        )
        self._found.append(_Fragment(place, at, tuple(digests), is_last, is_short))
        return True

    def name(self, torn: Torn) -> None:
        """Accept the name of a fragment in a line that is proven."""
        if self._names < MAX_FRAGMENTS:
            self._names += 1
            self._torn[torn.digest].append(torn)
            # Another worker may have completed the line; then an empty line follows.
            blank = Torn(_BLANK, torn.at - 1, torn.at - 1)
            if blank not in self._torn[_BLANK][-1:]:
                self._torn[_BLANK].append(blank)

    def findings(self) -> Iterator[tuple[str, bool, str]]:
        """
        Yield the fragments that no proven line names: place, whether the fragment can
        be an incomplete line, and a text.
        """
        for one in self._found:
            if self._excuse(one.digests[0], one.at):
                continue
            if (
                one.is_short
                or any(self._excuse(digest, one.at) for digest in one.digests[1:])
                or one.is_last()
            ):
                yield one.place, True, "an incomplete line"
            else:
                yield one.place, False, "not a line of kas"

    def _excuse(self, digest: str, at: int) -> bool:
        """Use the first name of a fragment; each name is used once."""
        names = self._torn.get(digest, [])
        fitting = [one for one in names if one.after <= at <= one.at]
        if not fitting:
            return False
        names.remove(min(fitting, key=lambda one: one.at))
        return True
