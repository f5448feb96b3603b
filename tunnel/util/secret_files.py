"""Files with secrets: whether other users of the machine can read them."""

from __future__ import annotations

import stat
from pathlib import Path

from twisted.logger import Logger

from tunnel.util.file_version import Stamp, stamp_of

__all__ = ["warn_if_public"]

_log = Logger()

#: What was told of already; as many as files are named.
_told: dict[Path, Stamp] = {}


def warn_if_public(path: Path) -> None:
    """
    Tell operators of a secret that every user can read, once for each change of it.

    Not refused: what a pod mounts belongs to root, and is often for everybody.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if not mode & stat.S_IROTH:
        _told.pop(path, None)
    elif _told.get(path) != (stamp := stamp_of(path)):
        _told[path] = stamp
        _log.warn(
            "every user of this machine can read the secret {path} (mode {mode}); "
            "chmod 600 {path}",
            path=str(path),
            mode=f"{mode:o}",
        )
