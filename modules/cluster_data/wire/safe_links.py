"""Addresses in texts of clusters that a page may offer as links."""

from __future__ import annotations

import re

__all__ = ["MAX_LINK", "is_safe_link"]

#: Maximum number of characters of an address.
MAX_LINK = 512

#: A scheme that runs no code, and then no character that browsers remove or that begins
#: another address, as the pipe does in ``title|javascript:...``.
_SAFE = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x20\x7f-\x9f|<>\"'\\^`{}]+", re.I)


def is_safe_link(link: str) -> bool:
    """Return whether a browser that follows *link* runs no code of the link."""
    return len(link) <= MAX_LINK and _SAFE.fullmatch(link) is not None
