"""The audit log of kas with its exports, retention and searches, as parts of kas."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from google.protobuf.descriptor import ServiceDescriptor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from kas.audit.exports.part import AuditExports
from kas.audit.log import AuditLog
from kas.audit.retaining import AuditRetention
from kas.audit.search import AuditQuery, Newest, newest
from kas.audit.service import AUDIT_LOG, PEER_AUDIT_LOG, AuditSearches
from kas.config.schema import Audit
from kas.identity.sign_ins import SignIns
from kas.state.directory import StateDirectory
from tunnel.api import AuditEvent, IPeers
from tunnel.program.parts import Part
from tunnel.program.runtime import Runtime

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
        self.parts: tuple[Part, ...] = (self.log, exports, retention)
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

    def _in_thread(self, act: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Call a function that blocks."""
        reactor = self._reactor
        return deferToThreadPool(reactor, reactor.getThreadPool(), act, *arguments)

    def _record(self, event: AuditEvent) -> None:
        self.log.record("kas", event)
