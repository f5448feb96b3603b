"""Number of bytes that the cache may use."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DEFAULT", "budget_of"]

#: Bytes of the cache without a setting and without a lower limit of the container.
DEFAULT = 128 * 1024 * 1024

#: The memory limit of the container, in a file of the kernel (cgroup v2).
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def budget_of(setting: int | None, limit_file: Path = _LIMIT) -> int:
    """
    Return the setting, or `DEFAULT`, or a quarter of a lower limit of the container.
    """
    if setting is not None:
        return setting
    try:
        limit = int(limit_file.read_text())
    except (OSError, ValueError):
        # There is no limit, or the text is "max".
        return DEFAULT
    return min(DEFAULT, limit // 4)
