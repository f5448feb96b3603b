"""Sign-ins for the audit log: the first use of a credential, and its refusals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tunnel.api import (
    Access,
    AgentIdentity,
    AuditEvent,
    AuditStage,
    HasPeer,
    program_of,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.addresses import client_network
from tunnel.toolkit.recent import Recent

__all__ = [
    "ACCEPTED_SECONDS",
    "MAX_REFUSED",
    "MAX_SIGN_INS",
    "REFUSED_SECONDS",
    "SignIns",
]

#: Seconds until the use of an accepted credential by the same client is recorded again:
#: half a day, so that each day of work has an event, and an agent whose connection
#: breaks each minute has two events a day.
ACCEPTED_SECONDS = 12 * 3600.0

#: Seconds until a refusal of the same credential to the same client is recorded again.
#: A page may ask for the rights of one user at a thousand agents, and the limit of the
#: audit log on refusals of all clients is 10 a second.
REFUSED_SECONDS = 60.0

#: Maximum number of entries for sign-ins, with 250 bytes each.  A sign-in has two, for
#: its address and its network: enough for the 10,000 agents of one kas, and as many
#: users.  A forgotten sign-in is recorded again.
MAX_SIGN_INS = 40_000

#: Maximum number of remembered refusals, with 250 bytes each: more than the audit log
#: records within `REFUSED_SECONDS`.
MAX_REFUSED = 5_000

#: Errors that refuse the credential itself; after any other error, such as too many
#: checks for one address, the credential was not checked.
_REFUSALS: Final = frozenset(
    (
        Status.UNAUTHENTICATED,
        Status.PERMISSION_DENIED,
        Status.NOT_FOUND,
    )
)

_T = TypeVar("_T", Access, AgentIdentity)


@attrs.define(eq=False)
class SignIns:
    """
    Recorder of sign-ins, at most one for each credential and client within
    `ACCEPTED_SECONDS`.

    Clients of one IPv6 network count as one client.

    :param record: writes an event to the audit log.
    """

    _record: Callable[[AuditEvent], object]
    _clock: IReactorTime
    #: Times at which the next event may be recorded, by accepted credential and host.
    _next: Recent[tuple[str, ...], float] = attrs.field(
        factory=lambda: Recent(MAX_SIGN_INS), init=False
    )
    #: The same for refused credentials, separately: otherwise, a flood of refusals
    #: would cause events of accepted credentials, which have no limit.
    _next_refused: Recent[Hashable, float] = attrs.field(
        factory=lambda: Recent(MAX_REFUSED), init=False
    )

    def checked(
        self,
        method: str,
        answer: _T | Deferred[_T],
        token: bytes | str,
        peer: HasPeer | None,
    ) -> _T | Deferred[_T]:
        """
        Record the result of a check, and return it.

        :param method: the kind of the credential, such as ``oidc``; empty if it is
            unknown.
        """
        if isinstance(answer, Deferred):
            return answer.addCallbacks(
                partial(self._later_accepted, method, peer),
                partial(self._later_refused, method, token, peer),
            )
        self._accepted(method, answer, peer)
        return answer

    def _later_accepted(self, method: str, peer: HasPeer | None, found: _T) -> _T:
        self._accepted(method, found, peer)
        return found

    def _later_refused(
        self, method: str, token: bytes | str, peer: HasPeer | None, failure: Failure
    ) -> Failure:
        if isinstance(failure.value, CallError):
            self.refused(method, failure.value, token, peer)
        return failure

    def _accepted(
        self, method: str, found: Access | AgentIdentity, peer: HasPeer | None
    ) -> None:
        host = _host(peer)
        # Most calls end here, because each request of a user is such a call.
        until = self._next.get((found.credential_id, host))
        if until is not None and self._clock.seconds() < until:
            return
        if isinstance(found, Access):
            self.accepted(method, found.credential_id, peer, found)
        else:
            about = {"agent": found.agent_name, "agent_id": found.agent_id}
            self.accepted(method, found.credential_id, peer, None, **about)

    def accepted(
        self,
        method: str,
        credential_id: str,
        peer: HasPeer | None,
        access: Access | None = None,
        **details: str,
    ) -> None:
        """
        Record that kas accepted a credential, unless this is known.

        :param access: the rights of a user.
        :param details: further fields of the event.
        """
        host = _host(peer)
        now = self._clock.seconds()
        # Compare the network first, because a client may have many addresses in it.
        network = (credential_id, client_network(host), "")
        is_known = now < self._next.get(network, 0.0)
        self._next[credential_id, host] = now + ACCEPTED_SECONDS
        if is_known:
            return
        self._next[network] = now + ACCEPTED_SECONDS
        if access is None:
            details["credential"] = credential_id
        self._write(method, "accepted", AuditStage.CHANGED, peer, access, details)

    def refused(
        self, method: str, error: CallError, token: bytes | str, peer: HasPeer | None
    ) -> None:
        """
        Record that kas refused a credential, unless *error* is about something else.

        The event does not contain the agent that the client named: a user may have put
        the token there.
        """
        if error.status not in _REFUSALS:
            return
        if isinstance(token, str):
            token = token.encode("utf-8", "surrogateescape")
        digest = hashlib.sha256(f"{method}:".encode() + token).digest()
        key = (digest, client_network(_host(peer)), error.status)
        now = self._clock.seconds()
        if now < self._next_refused.get(key, 0.0):
            return
        self._next_refused[key] = now + REFUSED_SECONDS
        # For the same reason, omit the message about an unknown kind, which repeats the
        # kind.
        reason = error.message if method else "unknown kind of credential"
        details = {"reason": reason, "status": error.status.name}
        self._write(method, "refused", AuditStage.DENIED, peer, None, details)

    def _write(
        self,
        method: str,
        outcome: str,
        stage: AuditStage,
        peer: HasPeer | None,
        access: Access | None,
        details: dict[str, str],
    ) -> None:
        found = {
            "method": method.replace(" ", "_") or "unknown",
            **details,
            "client": _host(peer),
            "user_agent": program_of(peer),
        }
        known = {name: text for name, text in found.items() if text}
        self._record(
            AuditEvent(
                "sign_in",
                access,
                outcome,
                known,
                stranger=stage is AuditStage.DENIED,
                stage=stage,
            )
        )


def _host(peer: HasPeer | None) -> str:
    """Return the address of a client; empty if it is unknown."""
    return "" if peer is None else str(getattr(peer.peer_address, "host", ""))
