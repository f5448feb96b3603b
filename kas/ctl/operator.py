"""Name of the user who runs `kasctl`, for the audit log of kas."""

from __future__ import annotations

import os
import pwd

__all__ = ["MAX_OPERATOR", "operator_name"]

#: Maximum characters of the user's name.
MAX_OPERATOR = 100


def operator_name() -> str:
    """
    Return the name of the user who runs this command, and the user who called ``sudo``.
    """
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # Use the number, because the user has no entry in the system's database.
        name = str(os.getuid())
    behind = os.environ.get("SUDO_USER", "")
    name = f"{behind} as {name}" if behind and behind != name else name
    return "".join(c if " " <= c <= "~" else "?" for c in name)[:MAX_OPERATOR]
