"""Libraries of npm, as a ``package-lock.json`` has them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.integration import needs

__all__ = ["installed"]


def installed(source: Path, what: str, *programs: str) -> Path:
    """
    A folder with the libraries of *source*, and with *programs* of it.

    It is kept beside the programs of Kubernetes, by what the lock says.

    :param what: they are, for who has none.
    """
    node = "apt-get install nodejs npm"
    needs.program("node", node)
    npm = needs.program("npm", node)
    lock = (source / "package-lock.json").read_bytes()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base, "txkas-kube", f"node-{hashlib.sha256(lock).hexdigest()[:16]}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as only_one:
        fcntl.flock(only_one, fcntl.LOCK_EX)
        done = folder / ".done"
        if not done.exists():
            for name in "package.json", "package-lock.json":
                shutil.copy(source / name, folder)
            quiet = ("--ignore-scripts", "--no-audit", "--no-fund")
            ended = subprocess.run(
                [npm, "ci", *quiet],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=240,
            )
            if ended.returncode:
                needs.missing(what, f"cd {source} && npm ci, with a registry")
            done.touch()
    for name in programs:
        shutil.copy(source / name, folder)
    return folder
