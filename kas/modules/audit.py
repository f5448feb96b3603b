"""Access of one module to the audit log."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from kas.audit.log import AuditLog
from tunnel.api import AuditEvent, AuditLevel, EnforcedEvents, IAudit
from tunnel.hosting.scope import ModuleScope

__all__ = ["ModuleAudit"]


@implementer(IAudit)
class ModuleAudit:
    """Implementation of `IAudit` for one module."""

    def __init__(self, scope: ModuleScope, log: AuditLog) -> None:
        self._name = scope.name
        self._log = log

    @property
    def level(self) -> AuditLevel:
        """Level of events that the operator has configured."""
        return self._log.level

    @property
    def enforced(self) -> frozenset[EnforcedEvents]:
        """Requests whose first event must be on disk before they are forwarded."""
        return self._log.enforced

    def new_id(self) -> str:
        """Return a new id for an event."""
        return self._log.new_id()

    def record(self, event: AuditEvent) -> None:
        """Write one event to the audit log."""
        self._log.record(self._name, event)

    def commit(self, event: AuditEvent) -> Deferred[None]:
        """Write one event to the audit log, and wait until it is on disk."""
        return self._log.commit(self._name, event)
