"""Sessions for operators, who see and end those of all users."""

from __future__ import annotations

from typing import Any, Final

from modules.web_page.server.sessions import UserSession, UserSessions
from modules.web_page.wire import page_sessions_pb2 as wire
from tunnel.api import (
    CLIENT_ADDRESS,
    OPERATOR,
    AuditEvent,
    AuditStage,
    EnforcedEvents,
    IServerModuleApi,
)
from tunnel.errors import CallError, Status

__all__ = ["PAGE_SESSIONS", "SessionOperators"]

PAGE_SESSIONS: Final = wire.DESCRIPTOR.services_by_name["PageSessions"]

#: Maximum characters of the client's texts in an event of the audit log.
_MAX_DETAIL: Final = 200


class SessionOperators:
    """Implementation of `PageSessions` on the external API."""

    def __init__(self, api: IServerModuleApi, sessions: UserSessions) -> None:
        self._audit = api.audit
        self._sessions = sessions

    async def list_sessions(
        self, request: wire.ListRequest, call: Any
    ) -> wire.ListResponse:
        """Return sessions."""
        found = self._of_user(request.user)
        return wire.ListResponse(sessions=map(_message, found))

    async def end_sessions(
        self, request: wire.EndRequest, call: Any
    ) -> wire.EndResponse:
        """
        End sessions.

        :raises CallError: NOT_FOUND if an id is unknown: then none ends.
        """
        if request.all:
            found = self._of_user("")
        elif request.user:
            found = self._of_user(request.user)
        else:
            known = {one.id: one for one in self._sessions.all()}
            unknown = [one for one in request.ids if one not in known]
            if unknown or not request.ids:
                raise CallError(
                    Status.NOT_FOUND,
                    f"there is no session {unknown[0][:40]}"
                    if unknown
                    else "name sessions, a user, or all",
                )
            found = [known[one] for one in dict.fromkeys(request.ids)]
        event_id = ""
        if EnforcedEvents.ADMINISTRATION in self._audit.enforced:
            event_id = self._audit.new_id()
            await self._audit.commit(_event(found, call, AuditStage.BEGUN, event_id))
        for one in found:
            await self._sessions.end(one.key)
        stage = AuditStage.ENDED if event_id else AuditStage.CHANGED
        self._audit.record(_event(found, call, stage, event_id))
        return wire.EndResponse(sessions=map(_message, found))

    def _of_user(self, user: str) -> list[UserSession]:
        found = [
            one
            for one in self._sessions.all()
            if not user or user in (one.owner, one.owner.partition(":")[2])
        ]
        return sorted(found, key=lambda one: -one.used_at)


def _message(session: UserSession) -> wire.Session:
    return wire.Session(
        id=session.id,
        owner=session.owner,
        name=session.name,
        method=session.method,
        created_at=session.created_at,
        used_at=session.used_at,
        ends_at=session.ends_at,
        address=session.address,
        program=session.program,
    )


def _event(
    ended: list[UserSession], call: Any, stage: AuditStage, event_id: str
) -> AuditEvent:
    details: dict[str, str | int | bool] = {
        "sessions": ", ".join(one.id for one in ended)[:_MAX_DETAIL],
        "users": ", ".join(dict.fromkeys(one.owner for one in ended))[:_MAX_DETAIL],
        "count": len(ended),
    }
    for name, field in (("operator", OPERATOR), ("client", CLIENT_ADDRESS)):
        if text := call.metadata.get(field, ""):
            details[name] = text[:_MAX_DETAIL]
    return AuditEvent("page.end_sessions", details=details, id=event_id, stage=stage)
