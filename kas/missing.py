"""Messages for an installation without some required packages."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["not_installed"]


def not_installed(program: str, error: ModuleNotFoundError) -> NoReturn:
    """Exit from *program* with a one-line message about the missing package."""
    package = (error.name or "a package").partition(".")[0]
    sys.exit(
        f"{program}: {package} is not installed; install everything with: pip "
        "install 'txkas[server]'"
    )
