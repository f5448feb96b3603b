"""Limit of ``%TAG`` lines, which libyaml compares with each other."""

from __future__ import annotations

import re
from itertools import islice

__all__ = ["MAX_TAGS", "tag_beyond_limit"]

#: ``%TAG`` lines of a text.  libyaml compares each with all before it and lets no other
#: thread run meanwhile: a file of 5 MiB would stop the process for minutes.  Manifests
#: have none.
MAX_TAGS = 100

#: At the beginning of a line, as libyaml knows lines.
_TAG = re.compile("(?:\\A|[\n\r\x85\u2028\u2029])\ufeff?%TAG")


def tag_beyond_limit(text: str) -> int:
    """Return the line of the first ``%TAG`` that is too many; 0: none is."""
    found = next(islice(_TAG.finditer(text), MAX_TAGS, None), None)
    return 0 if found is None else text.count("\n", 0, found.end()) + 1
