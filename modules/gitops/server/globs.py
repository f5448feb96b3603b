"""
GitLab's globs, which select the files of a source.

``*`` matches any characters except ``/``, ``**`` any folders, ``?`` one character,
``[a-z]`` one of a range, ``{a,b}`` either alternative.  Files below a folder whose name
begins with a dot never match, even if a glob names the folder, unless `Glob.matches`
has ``hidden_folders``.  Source: doublestar of Go, as GitLab's agent uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

__all__ = ["Glob"]

#: Maximum characters of one glob; paths in Git are shorter.
MAX_LENGTH = 1000

#: Maximum number of alternatives of a glob with braces, and maximum characters of all
#: of them together.  A glob with this maximum takes ten milliseconds to compile.
MAX_ALTERNATIVES, MAX_EXPANDED = 100, 3000

#: Maximum characters of all patterns that are read while braces are expanded, which
#: takes five milliseconds.
MAX_READ = 30_000

#: Cost of beginning to compare a path with one alternative, in steps.
BEGINNING = 100

#: Cost of a call of `Glob.is_outside`, in steps.
SKIPPING = 200

_MAGIC = re.compile(r"[*?\[{\\]")


def _check_length(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a glob may have at most {MAX_LENGTH} characters")


class Glob:
    """
    Glob that selects files, with the cost of using it.

    :ivar prefix: the folder that contains every match; empty for the root.
    :raises ValueError: if *text* is not a glob; the error contains the reason.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        _check_length(text)
        pattern = text.lstrip("/")
        if not pattern:
            raise ValueError("a glob must name files, such as /prod/**/*.yaml")
        if "\0" in pattern or {"..", "."} & set(pattern.split("/")):
            raise ValueError("a glob cannot lead out of the repository")
        found = _MAGIC.search(pattern)
        fixed = pattern[: found.start()] if found else pattern
        self.prefix = fixed.rpartition("/")[0]
        alternatives = dict.fromkeys(_without_braces(pattern))
        #: Cost of compiling the glob: its number of characters after braces were
        #: expanded.
        self.cost = sum(map(len, alternatives))
        if self.cost > MAX_EXPANDED:
            raise ValueError("the braces of a glob expand to too much; write several")
        self._expressions = [_path(one) for one in alternatives]
        #: Compiled expressions; None before the first call of `matches`.
        self._patterns: list[re.Pattern[str]] | None = None
        self._alternatives = tuple(alternatives)
        #: For each alternative: the patterns for the names of the folders before
        #: ``**``, and whether the alternative contains ``**``; None before the first
        #: call of `leads_below`.
        self._ways: list[tuple[list[re.Pattern[str]], bool]] | None = None

    @classmethod
    def of_file(cls, path: str) -> Glob:
        """
        Return a glob for one file, whose name may contain any characters.

        :raises ValueError: if *path* cannot be a file.
        """
        # Check the length first, because escaping a longer path takes seconds.
        _check_length(path)
        return cls(_MAGIC.sub(r"\\\g<0>", path))

    def matches(self, path: str, *, hidden_folders: bool = False) -> bool:
        """
        Return whether a file belongs to the source.

        :param path: relative to the root of the repository, without ``/`` at its
            beginning.
        :param hidden_folders: whether to also match below folders whose name begins
            with a dot.
        """
        if not hidden_folders and "/." in f"/{path.rpartition('/')[0]}":
            return False
        if self._patterns is None:
            self._patterns = [re.compile(one) for one in self._expressions]
        return any(one.fullmatch(path) is not None for one in self._patterns)

    def is_outside(self, path: str) -> bool:
        """
        Return whether a path neither is in the folder of all matches nor leads to it.
        """
        below = f"{self.prefix}/" if self.prefix else ""
        return not path.startswith(below) and not below.startswith(f"{path}/")

    def steps(self, path: str) -> int:
        """
        Return an upper limit of the steps of `matches` or `leads_below`.

        Each character of the path is compared with each character of the glob at most
        once.
        """
        return len(path) * self.cost + BEGINNING * len(self._alternatives)

    def leads_below(self, path: str, *, hidden_folders: bool = False) -> bool:
        """
        Return whether the glob names *path* as a folder that contains matching files.

        Folders that only ``**`` matches do not count.

        :param path: as in `matches`, like *hidden_folders*.
        """
        if not hidden_folders and "/." in f"/{path}":
            return False
        if self._ways is None:
            self._ways = [_way(one) for one in self._alternatives]
        names = path.split("/")
        return any(
            len(names) < len(way) + more
            and all(
                one.fullmatch(name) is not None
                for one, name in zip(way, names, strict=False)
            )
            for way, more in self._ways
        )


def _way(pattern: str) -> tuple[list[re.Pattern[str]], bool]:
    """
    Return the patterns for the names before ``**``, and whether *pattern* contains
    ``**``.
    """
    names: list[re.Pattern[str]] = []
    for segment in _split(pattern):
        if segment == "**":
            return names, True
        names.append(re.compile(_name(segment)))
    return names, False


def _without_braces(pattern: str) -> Iterator[str]:
    """Expand braces: one pattern for each combination of alternatives."""
    waiting, given, read = [pattern], 0, 0
    while waiting:
        one = waiting.pop()
        read += len(one)
        if read > MAX_READ:
            raise ValueError("the braces of a glob expand to too much; write several")
        opened = _brace(one)
        if opened is None:
            yield one
            given += 1
        else:
            begin, end, commas = opened
            edges = [begin, *commas, end]
            waiting += [
                one[:begin] + one[low + 1 : high] + one[end + 1 :]
                for low, high in pairwise(edges)
            ]
        if given + len(waiting) > MAX_ALTERNATIVES:
            raise ValueError(f"a glob may have at most {MAX_ALTERNATIVES} alternatives")


def _brace(pattern: str) -> tuple[int, int, list[int]] | None:
    """Find the first outermost ``{…}``: return its begin, its end, and its commas."""
    begin, depth, place = -1, 0, 0
    commas: list[int] = []
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += 1
        elif character == "[":
            place = _class_end(pattern, place)
        elif character == "{":
            begin = place if depth == 0 else begin
            depth += 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                return begin, place, commas
        elif character == "," and depth == 1:
            commas.append(place)
        place += 1
    if depth:
        raise ValueError("a { of the glob has no }")
    return None


def _path(pattern: str) -> str:
    """
    Return the regular expression of a glob without braces.

    Between two ``**``, and between two ``*`` of one name, the first place that fits is
    as good as any later one, because the rest can match any remaining text.  Therefore
    no place is tried twice (atomic groups), and the time is at most quadratic in a
    path's length.
    """
    groups: list[list[str]] = [[]]
    for segment in _split(pattern):
        if segment == "**":
            groups.append([])
        else:
            groups[-1].append(_name(segment))
    first, *others = ["/".join(group) for group in groups]
    if not others:
        return first
    *middle, last = others
    made = first + "/" if first else ""
    made += "".join(f"(?>(?:[^/]+/)*?{one}/)" for one in middle if one)
    return f"{made}(?:[^/]+/)*{last or '[^/]+'}"


def _split(pattern: str) -> Iterator[str]:
    """Split a path into names; a ``/`` within ``[]`` does not separate names."""
    begin = place = 0
    while place < len(pattern):
        if pattern[place] == "\\":
            place += 1
        elif pattern[place] == "[":
            place = _class_end(pattern, place)
        elif pattern[place] == "/":
            yield pattern[begin:place]
            begin = place + 1
        place += 1
    yield pattern[begin:]


def _name(segment: str) -> str:
    """Return the regular expression of one name of a path."""
    parts: list[str] = [""]
    place = 0
    while place < len(segment):
        character = segment[place]
        place += 1
        if character == "*":
            parts.append("")
        elif character == "?":
            parts[-1] += "[^/]"
        elif character == "[":
            end = _class_end(segment, place - 1)
            parts[-1] += _class(segment[place:end])
            place = end + 1
        elif character == "\\":
            if place == len(segment):
                raise ValueError("the glob ends with a backslash")
            parts[-1] += re.escape(segment[place])
            place += 1
        else:
            parts[-1] += re.escape(character)
    first, *others = parts
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>[^/]*?{one})" for one in middle if one) + "[^/]*" + last


def _class_end(pattern: str, place: int) -> int:
    """Find the ``]`` for the ``[`` at *place*."""
    place += 1
    if pattern[place : place + 1] in ("^", "!"):
        place += 1
    first = place
    while place < len(pattern) and (pattern[place] != "]" or place == first):
        place += 2 if pattern[place] == "\\" else 1
    if place >= len(pattern):
        raise ValueError("a [ of the glob has no ]")
    return place


def _class(inside: str) -> str:
    """Return the regular expression of ``[…]``: one character, never ``/``."""
    negated = inside[:1] in ("^", "!")
    characters = iter(inside[1:] if negated else inside)
    #: Characters with whether each is literal, that is, not the ``-`` of a range.
    plain = [
        (next(characters, ""), True) if one == "\\" else (one, one != "-")
        for one in characters
    ]
    made, place = "", 0
    while place < len(plain):
        low = plain[place][0]
        if plain[place + 1 : place + 2] == [("-", False)] and place + 2 < len(plain):
            high = plain[place + 2][0]
            if high < low:
                raise ValueError(f"the range {low}-{high} of the glob is empty")
            made += f"{re.escape(low)}-{re.escape(high)}"
            place += 3
        else:
            made += re.escape(low)
            place += 1
    return f"[^/{made}]" if negated else f"(?!/)[{made}]"
