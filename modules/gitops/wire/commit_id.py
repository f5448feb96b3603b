"""Pattern for ids of commits, which never move, unlike refs."""

from __future__ import annotations

import re

__all__ = ["COMMIT"]

#: Pattern for a full id, SHA-1 or SHA-256.
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
