"""
The commands ``kas`` and ``agentk``: twistd in the foreground, without its options.
"""

from __future__ import annotations

import os
import sys

from twisted.python import usage
from twisted.scripts import twistd

__all__ = ["agentk", "kas"]


class _Options(twistd.ServerOptions):  # type: ignore[name-defined, misc]
    """Options of twistd, which the help does not show."""

    def getSynopsis(self) -> str:
        return "Usage:"


def kas() -> None:
    """Run the server."""
    _run("kas")


def agentk() -> None:
    """Run the agent."""
    _run("agentk")


def _run(name: str) -> None:
    _open_standard_streams()
    options = _Options()
    try:
        try:
            options.parseOptions(["--nodaemon", "--pidfile=", name, *sys.argv[1:]])
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the help, such as `head`, has left; if Python flushed standard
        # output again, it would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except usage.error as error:
        print(f"{name}: {error}; see '{name} --help'", file=sys.stderr)
        sys.exit(2)
    twistd.runApp(options)


def _open_standard_streams() -> None:
    """Reopen closed standard streams, so that no socket gets their descriptors."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
