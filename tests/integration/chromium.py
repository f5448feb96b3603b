"""A real browser, on one page."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration import needs
from tests.integration.processes import Process

__all__ = ["browsing", "found"]

#: Names of browsers that need no screen.
PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--ignore-certificate-errors"),
    # Nothing is looked for elsewhere.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    # Otherwise it ends when the page is there.
    "--remote-debugging-port=0",
)


def found() -> Path:
    """The program."""
    browser = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if browser is None:
        needs.missing("chromium", "apt-get install chromium-headless-shell")
    return Path(browser)


@contextmanager
def browsing(browser: Path, url: str, folder: Path, name: str) -> Iterator[None]:
    """Have *url* open, with a profile of its own in *folder*."""
    profile = folder / name
    profile.mkdir()
    process = Process(
        f"chromium-{name}",
        [browser, *_FLAGS, f"--user-data-dir={profile}", url],
        folder / f"{name}.log",
    )
    try:
        yield
    finally:
        # What Debian installs is a script that starts the browser.
        os.killpg(process.pid, signal.SIGKILL)
        process.kill()
