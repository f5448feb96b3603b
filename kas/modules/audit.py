"""Access of one module to the audit log."""

from __future__ import annotations

from zope.interface import implementer

from kas.audit.log import AuditLog
from tunnel.api import AuditEvent, AuditLevel, IAudit
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

    def new_id(self) -> str:
        """Return a new id for an event."""
        return self._log.new_id()

    def record(self, event: AuditEvent) -> None:
        """Write one event to the audit log."""
        self._log.record(self._name, event)
