"""The audit log in tests."""

from __future__ import annotations

from zope.interface import implementer

from tunnel.api import AuditEvent, AuditLevel, IAudit

__all__ = ["FakeAudit"]


@implementer(IAudit)
class FakeAudit:
    """`IAudit` that records the events."""

    def __init__(self) -> None:
        self.level = AuditLevel.ALL
        #: Events that the module recorded.
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)
