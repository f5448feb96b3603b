"""Events of the audit log about requests, from the first byte to the end."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from modules.kubernetes_api.fields import audit_field
from tunnel.api import (
    Access,
    AuditEvent,
    AuditLevel,
    AuditStage,
    EnforcedEvents,
    IAudit,
)
from tunnel.http1 import Exchange, RequestHead
from tunnel.kubernetes import (
    Lasts,
    lasts,
    only_reads,
    opens_session,
    request_info,
)

__all__ = ["RequestAudit", "RequestAudits"]


class RequestAudits:
    """
    The audit log, as requests use it.

    :param address: returns the address of the client of an exchange.
    """

    def __init__(
        self, audit: IAudit, clock: IReactorTime, address: Callable[[Exchange], str]
    ) -> None:
        self.audit = audit
        self.seconds: Callable[[], float] = clock.seconds
        self.address = address
        #: Whether anything is recorded.
        self.enabled = audit.level is not AuditLevel.NONE
        self._changes_only = audit.level is AuditLevel.CHANGES
        self._sessions = EnforcedEvents.SESSIONS in audit.enforced
        self._changes = EnforcedEvents.CHANGES in audit.enforced
        self._secrets = EnforcedEvents.SECRETS in audit.enforced

    def of(
        self,
        exchange: Exchange,
        target: bytes,
        head: RequestHead | None = None,
        reads: bool = False,
        base: bytes = b"",
    ) -> RequestAudit | None:
        """
        Return the events of one request; None if nothing is recorded.

        :param head: the head of the request, if it differs from the exchange's.
        :param reads: whether the request changes nothing, whatever its method is.
        :param base: the beginning of *target* before the path of the Kubernetes API.
        """
        if not self.enabled:
            return None
        return RequestAudit(self, exchange, target, head or exchange.head, reads, base)

    def wants(self, outcome: int | str, audit: RequestAudit) -> bool:
        """
        Return whether the operator wants an event with *outcome*.

        Refusals are recorded for any request, and anything else if the request may
        change something.
        """
        return not self._changes_only or outcome in (401, 403) or not audit.reads

    def enforces(self, method: bytes, target: bytes, upgrade: bool) -> bool:
        """
        Return whether a request must be on disk before it is forwarded.

        :param target: as in `request_info`.
        """
        return (
            (self._sessions and opens_session(method, target, upgrade))
            or (self._secrets and _names_secrets(method, target))
            or (self._changes and not only_reads(method, target, upgrade))
        )


class RequestAudit:
    """
    The events of the audit log about one request.

    A request that may last, such as ``exec`` or a watch, has an event when kas forwards
    it, and an event when it has ended; both have the same id.  So has a request whose
    events are enforced, because its first event must be on disk before kas forwards it.
    Any other request has one event, when its response or its end is known.
    """

    __slots__ = (
        "_base",
        "_begun",
        "_by_owner",
        "_exchange",
        "_head",
        "_id",
        "_log",
        "_over",
        "_reads",
        "_since",
        "_status",
        "_target",
        "_unanswered",
    )

    def __init__(
        self,
        log: RequestAudits,
        exchange: Exchange,
        target: bytes,
        head: RequestHead,
        reads: bool,
        base: bytes = b"",
    ) -> None:
        self._log = log
        self._exchange = exchange
        self._base = base.decode("latin-1")
        rest = target[len(base) :]
        self._target = rest if rest.startswith(b"/") or not base else b"/" + rest
        self._head = head
        self._reads = reads
        self._id = ""
        # Whether the log has the beginning of the request.
        self._begun = False
        self._since = 0.0
        # Whether the log has the end of the request.
        self._over = False
        # The status of the response, as soon as it is known.
        self._status: int | None = None
        self._unanswered = False
        # Whether the policy of the cluster's owner denied the request.
        self._by_owner = False

    @property
    def reads(self) -> bool:
        """Whether the request certainly changes nothing."""
        head = self._head
        return self._reads or only_reads(head.method, self._target, bool(head.upgrade))

    @property
    def is_session(self) -> bool:
        """Whether the request runs a program, or attaches to one."""
        info = request_info(self._head.method, self._target)
        return info.resource == "pods" and info.subresource in ("exec", "attach")

    @property
    def has_begun(self) -> bool:
        """Whether the log has the beginning of the request."""
        return self._begun

    def field(self) -> bytes:
        """Return the header line with the id of the request for the API server."""
        self._id = self._id or self._log.audit.new_id()
        return audit_field(self._id)

    def begin(self, access: Access) -> Deferred[None] | None:
        """
        Record the beginning of a request, if the request may last or is enforced.

        :returns: a `Deferred` if the request must wait until its event is on disk; it
            fails with `CallError` if the log cannot be written.
        """
        head = self._head
        method, upgrade = head.method, bool(head.upgrade)
        enforced = not self._reads and self._log.enforces(method, self._target, upgrade)
        may_last = upgrade or lasts(method, self._target) is not Lasts.NO
        if not enforced and not (may_last and self._log.wants("", self)):
            return None
        self._id = self._id or self._log.audit.new_id()
        self._begun = True
        self._since = self._log.seconds()
        event = self._event(AuditStage.BEGUN, access, "", {})
        if enforced:
            return self._log.audit.commit(event)
        self._log.audit.record(event)
        return None

    def answer(
        self,
        access: Access | None,
        status: int,
        unanswered: bool = False,
        by_owner: bool = False,
    ) -> None:
        """
        Record the response to a request.

        :param unanswered: whether the request was forwarded, but no response of the API
            server arrived: it may have been executed.
        :param by_owner: whether agentk denied the request because of the policy of the
            cluster's owner.
        """
        if self._over:
            return
        self._by_owner = by_owner
        if self._begun:
            self._status, self._unanswered = status, unanswered
            return
        self._over = True
        if self._log.wants(status, self):
            denied = by_owner or (not self._id and status in (401, 403, 405))
            stage = AuditStage.DENIED if denied else AuditStage.ANSWERED
            said: dict[str, str | int | bool] = {}
            if unanswered:
                said["unanswered"] = True
            self._record(stage, access, str(status), said)

    def end(
        self,
        access: Access | None,
        outcome: int | str,
        reason: str = "",
        unanswered: bool = False,
        amounts: tuple[int, int] = (0, 0),
        exit_code: int | None = None,
    ) -> None:
        """
        Record the end of a request, unless its response was the end.

        :param outcome: why there is no response; a status if the client got this status
            in place of one.
        :param reason: why a request that may last has ended.
        :param amounts: bytes from the client, and bytes to it.
        :param exit_code: the exit code of the program; None if it is unknown.
        """
        if self._over:
            return
        self._over = True
        said: dict[str, str | int | bool] = {}
        if self._status is not None:
            outcome, unanswered = self._status, self._unanswered
        if unanswered:
            said["unanswered"] = True
        if self._begun:
            said["bytes_in"], said["bytes_out"] = amounts
            said["ms"] = round((self._log.seconds() - self._since) * 1000)
            if reason:
                said["reason"] = reason
            if exit_code is not None:
                said["exit_code"] = exit_code
        elif not self._log.wants(outcome, self):
            return
        self._record(AuditStage.ENDED, access, str(outcome), said)

    def _record(
        self,
        stage: AuditStage,
        access: Access | None,
        outcome: str,
        said: dict[str, str | int | bool],
    ) -> None:
        self._log.audit.record(self._event(stage, access, outcome, said))

    def _event(
        self,
        stage: AuditStage,
        access: Access | None,
        outcome: str,
        said: dict[str, str | int | bool],
    ) -> AuditEvent:
        head = self._head
        info = request_info(head.method, self._target)
        for name, value in (
            ("verb", info.verb),
            ("path", self._base + info.path),
            ("group", info.group),
            ("version", info.version),
            ("resource", info.resource),
            ("subresource", info.subresource),
            ("namespace", info.namespace),
            ("name", info.name),
            ("client", self._log.address(self._exchange)),
            ("user_agent", self._exchange.program),
        ):
            if value:
                said[name] = value
        if self._by_owner:
            said["by"] = "owner"
        return AuditEvent(
            "kubernetes.request",
            access,
            outcome,
            said,
            stranger=access is None,
            id=self._id,
            stage=stage,
        )


def _names_secrets(method: bytes, target: bytes) -> bool:
    # This comparison excludes nearly every request; an escape may hide the word.
    if b"secrets" not in target and b"%" not in target:
        return False
    info = request_info(method, target)
    return info.resource == "secrets" and not info.group
