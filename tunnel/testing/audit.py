"""The audit log in tests."""

from __future__ import annotations

from collections import deque

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from tunnel.api import AuditEvent, AuditLevel, EnforcedEvents, IAudit

__all__ = ["FakeAudit"]


@implementer(IAudit)
class FakeAudit:
    """`IAudit` that records the events."""

    def __init__(self) -> None:
        self.level = AuditLevel.ALL
        self.enforced: frozenset[EnforcedEvents] = frozenset()
        #: Events that the module recorded.
        self.events: list[AuditEvent] = []
        #: Results for the next calls of `commit`; without one, a call succeeds.
        self.commits: deque[Deferred[None]] = deque()
        #: Events that the module committed, which are in `events`, too.
        self.committed: list[AuditEvent] = []
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return f"00000000-0000-7000-8000-{self._ids:012x}"

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def commit(self, event: AuditEvent) -> Deferred[None]:
        self.committed.append(event)
        self.record(event)
        return self.commits.popleft() if self.commits else succeed(None)
