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
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return f"00000000-0000-7000-8000-{self._ids:012x}"

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)
