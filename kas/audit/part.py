"""The audit log of kas with its exports, retention and searches, as parts of kas."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from google.protobuf.descriptor import ServiceDescriptor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from kas.audit.exports.part import AuditExports
from kas.audit.log import AuditLog
from kas.audit.retaining import AuditRetention
from kas.audit.search import AuditQuery, Newest, newest
from kas.audit.service import AUDIT_LOG, PEER_AUDIT_LOG, AuditSearches
from kas.config.schema import Audit
from kas.identity.sign_ins import SignIns
from kas.state.control import parse_change
from kas.state.directory import StateDirectory
from kas.state.unrecorded import UnrecordedChanges
from tunnel.api import AuditEvent, IPeers
from tunnel.errors import ConfigurationError
from tunnel.program.parts import Part, Steps
from tunnel.program.runtime import Runtime
from tunnel.toolkit.files import in_words

__all__ = ["AuditParts"]


class _Services(Protocol):
    """The services of kas' external API."""

    def handle(
        self, owner: str, service: ServiceDescriptor, implementation: object
    ) -> object:
        """Add a service."""


class AuditParts:
    """
    The parts of kas for ``observability.audit``.

    :ivar log: the audit log, which records nothing without settings.
    :ivar sign_ins: records sign-ins; None without settings.
    :ivar parts: the parts, in the order in which they start.
    """

    _log = Logger()

    def __init__(
        self, settings: Audit | None, runtime: Runtime, state: StateDirectory
    ) -> None:
        self._settings = settings
        self._reactor = runtime.reactor
        self.log = AuditLog(settings, runtime, state)
        self.sign_ins = (
            None if settings is None else SignIns(self._record, runtime.reactor)
        )
        exports = AuditExports(settings, runtime, state)
        retention = AuditRetention(
            settings, runtime, state, self._record, self._in_thread
        )
        self._unrecorded = UnrecordedChanges(state)
        changes = Steps("changes without kas", start=self._record_changes)
        self.parts: tuple[Part, ...] = (self.log, exports, retention, changes)
        for collector in (self.log, exports, retention):
            runtime.metrics.register(collector)

    def serve(self, services: _Services, peers: IPeers) -> None:
        """Serve searches in the audit log to operators and to other kas."""

        def search(path: Path, query: AuditQuery, limit: int) -> Deferred[Newest]:
            return self._in_thread(newest, path, query, limit, time.monotonic)

        searches = AuditSearches(
            None if self._settings is None else self._settings.file.absolute(),
            peers,
            search,
            self._record,
        )
        peers.handle(PEER_AUDIT_LOG, searches)
        services.handle("kas", AUDIT_LOG, searches)

    async def _record_changes(self) -> None:
        """
        Record the changes that `kasctl` made while no kas was running.

        Without an audit log, they are removed, so that their file does not grow.
        """
        try:
            changes = self._unrecorded.take()
        except (ConfigurationError, OSError) as error:
            self._log.warn(
                "changes by kasctl without a running kas are not in the audit log: "
                "{reason}",
                reason=in_words(error),
            )
            return
        for line in changes:
            try:
                self.log.record("kasctl", parse_change(line))
            except ValueError as error:
                self._log.warn(
                    "a change by kasctl without a running kas is not in the audit log: "
                    "{reason}",
                    reason=str(error),
                )

    def _in_thread(self, act: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Call a function that blocks."""
        reactor = self._reactor
        return deferToThreadPool(reactor, reactor.getThreadPool(), act, *arguments)

    def _record(self, event: AuditEvent) -> None:
        self.log.record("kas", event)
