"""A limit of ``%TAG`` lines, which libyaml compares with each other."""

from __future__ import annotations

import re
from itertools import islice

__all__ = ["MAX_TAGS", "tag_beyond_limit"]

#: Maximum number of ``%TAG`` lines in a text.  libyaml compares each with all earlier
#: ones, and blocks all other threads in the meantime: a file of 5 MiB would stop the
#: process for minutes.  Manifests contain no such lines.
MAX_TAGS = 100

#: A ``%TAG`` at the beginning of a line, by libyaml's definition of lines.
_TAG = re.compile("(?:\\A|[\n\r\x85\u2028\u2029])\ufeff?%TAG")


def tag_beyond_limit(text: str) -> int:
    """Return the line of the first ``%TAG`` beyond the limit; 0 if there is none."""
    found = next(islice(_TAG.finditer(text), MAX_TAGS, None), None)
    return 0 if found is None else text.count("\n", 0, found.end()) + 1
