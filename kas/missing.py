"""Messages for an installation that lacks packages."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["not_installed"]


def not_installed(program: str, error: ModuleNotFoundError) -> NoReturn:
    """Exit from *program* with a message of one line."""
    sys.exit(
        f"{program}: {error.name} is not installed; pip install 'txkas[server]' has "
        "everything"
    )
