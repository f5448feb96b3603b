"""A program as a service of twistd, with its log and its tree of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tunnel.program.logs import LoggingService
from tunnel.program.parts import Part, PartTree
from tunnel.program.startup import start_or_exit

__all__ = ["ProgramService"]


class ProgramService(LoggingService, Service):
    """
    The base class of a program; subclasses call `compose` at the end of ``__init__``.

    :param remarks: warnings about the configuration.
    """

    _log = Logger()
    _tree: PartTree

    def __init__(self, name: str, reactor: Any, remarks: Sequence[str]) -> None:
        self.name = name
        self._reactor = reactor
        self._remarks = remarks

    def compose(self, *parts: Part) -> None:
        """Set the parts, each after the parts that it needs."""
        self._tree = PartTree(parts)

    def startService(self) -> None:
        """Start the parts; a failure ends the process with its reason."""
        super().startService()  # type: ignore[no-untyped-call]
        self.start_logging(self._reactor)
        for remark in self._remarks:
            self._log.warn("{remark}", remark=remark)
        start_or_exit(self._tree.start(), self._reactor)

    def stopService(self) -> Deferred[None]:
        """Drain the parts, and stop them."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._tree.end())
