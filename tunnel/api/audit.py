"""Events of the audit log."""

from __future__ import annotations

from collections.abc import (
    Mapping,
)
from enum import Enum

import attrs
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from tunnel.api.users import Access

__all__ = [
    "AuditEvent",
    "AuditLevel",
    "AuditStage",
    "EnforcedEvents",
    "IAudit",
]


class AuditLevel(Enum):
    """The operator's choice of events for the audit log."""

    NONE = "none"
    #: Requests that change something or run a command, and refused requests.
    CHANGES = "changes"
    ALL = "all"


class EnforcedEvents(Enum):
    """
    Requests and changes that begin only after their first event is on disk.
    """

    #: ``exec``, ``attach``, ``port-forward``, ephemeral containers, proxied requests,
    #: and other connections that are upgraded.
    SESSIONS = "sessions"
    #: Requests that may change something.
    CHANGES = "changes"
    #: Reads of Secrets.
    SECRETS = "secrets"
    #: Changes by ``kasctl``, and orders of operators to modules.
    ADMINISTRATION = "administration"


class AuditStage(Enum):
    """The part of an action that an event describes."""

    #: A request that may last, or is enforced, will be forwarded; an event `ENDED` with
    #: the same id follows.
    BEGUN = "begun"
    #: A request got its response.
    ANSWERED = "answered"
    #: A request that may last has ended, or a request ended without a response.
    ENDED = "ended"
    #: kas refused a request, or agentk did because of its cluster owner's policy.
    DENIED = "denied"
    #: Anything else: something was changed or decided.
    CHANGED = "changed"


@attrs.frozen
class AuditEvent:
    """
    An entry of the audit log.

    :ivar action: a name that the module chooses, such as ``kubernetes.request``.
    :ivar access: the credential and its agent; None if kas accepted no credential.
    :ivar outcome: a status code, or a word.
    :ivar details: further fields for programs; never a secret.
    :ivar id: the id of the event, from `IAudit.new_id`, if a cluster's own audit log
        has it, too; if it is empty, kas creates an id.
    :ivar stage: the part of the action.
    :ivar stranger: whether kas refused a client because of its credential.  Anyone can
        cause such events, so the audit log limits their number and size.
    """

    action: str
    access: Access | None = None
    outcome: str = ""
    details: Mapping[str, str | int | bool] = attrs.field(factory=dict)
    stranger: bool = False
    id: str = ""
    stage: AuditStage = AuditStage.CHANGED


class IAudit(Interface):
    """The audit log: `IServerModuleApi.audit`."""

    level: AuditLevel = Attribute("The operator's choice of events.")

    enforced: frozenset[EnforcedEvents] = Attribute(
        "The requests and changes that must not begin before `commit` has succeeded."
    )

    def new_id() -> str:
        """
        Return a new id for an event, a UUID of version 7.

        The id is safe to send to others: it contains nothing but the time and random
        bits.
        """

    def record(event: AuditEvent) -> None:
        """Write one event to the audit log, without waiting."""

    def commit(event: AuditEvent) -> Deferred[None]:
        """
        Write one event to the audit log, and wait until it is on disk.

        The `Deferred` fails with `CallError` (UNAVAILABLE), whose text is for the
        client, if the log cannot be written.
        """
