"""The user who runs `kasctl`, as the audit log of kas names them."""

from __future__ import annotations

import os
import pwd

__all__ = ["MAX_OPERATOR", "operator_name"]

#: Characters of the user's name.
MAX_OPERATOR = 100


def operator_name() -> str:
    """Return the user who runs this command, and the user who called ``sudo``."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # A user without an entry in the system's database.
        name = str(os.getuid())
    behind = os.environ.get("SUDO_USER", "")
    name = f"{behind} as {name}" if behind and behind != name else name
    return "".join(c if " " <= c <= "~" else "?" for c in name)[:MAX_OPERATOR]
