"""Ids of commits, which never move, in contrast to refs."""

from __future__ import annotations

import re

__all__ = ["COMMIT"]

#: A whole id, of SHA-1 or SHA-256.
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
