"""
Checks of the cluster owner's policy, in front of every way from a module of agentk to
the cluster.

Without a policy, modules use the connections to the cluster directly.  With a policy,
they get the facades of this file in place of the connections; a request that a facade
did not check has no way out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, NoReturn, Protocol

import attrs

from tunnel.api import ICluster
from tunnel.errors import CallError, Status
from tunnel.http1 import ResponseReceiver, UpstreamPool, UpstreamRequest
from tunnel.kubernetes.access_review import Right

__all__ = [
    "GuardedCluster",
    "GuardedUpstream",
    "OwnerDenial",
    "Purpose",
    "RequestGuard",
    "RequestOrigin",
]


class Purpose(Enum):
    """Reason for a request."""

    #: A client of kas sent it.
    CALLER = "caller"
    #: The module does its own work, on behalf of kas' or Git's configuration.
    MODULE = "module"
    #: The module reads or writes its own records.
    RECORDS = "records"


@attrs.frozen(eq=False)
class RequestOrigin:
    """The module that makes a request, and the reason: one object for each."""

    module: str
    purpose: Purpose


class OwnerDenial(CallError):
    """
    Error for a request that the policy of the cluster's owner denies.

    The status is PERMISSION_DENIED; UNAVAILABLE if agentk has not read the policy yet.

    :ivar rule: the name of the rule; empty if no rule permits the request.
    """

    def __init__(
        self,
        message: str,
        rule: str = "",
        status: Status = Status.PERMISSION_DENIED,
    ) -> None:
        super().__init__(status, message)
        self.rule = rule

    @property
    def code(self) -> int:
        """The HTTP status for a client."""
        return 403 if self.status is Status.PERMISSION_DENIED else 503


class RequestGuard(Protocol):
    """A policy in effect; each method raises `OwnerDenial`."""

    def check(
        self,
        origin: RequestOrigin,
        method: bytes,
        target: bytes,
        fields: bytes,
        upgrade: bool,
    ) -> None:
        """
        Check a request to the API server.

        :param target: the target, with the prefix of the API server.
        :param fields: the fields as they are sent, each preceded by CR LF.
        """

    def marked(self, fields: bytes) -> bytes:
        """
        Return the fields to send in place of the fields that `check` has permitted.
        """

    def check_right(self, origin: RequestOrigin, fields: bytes, right: Right) -> None:
        """
        Check a right whose data agentk already has.

        :param fields: the fields of impersonation.
        """

    def check_service(
        self, origin: RequestOrigin, namespace: str, name: str, port: int
    ) -> None:
        """Check a connection to a Service."""


class GuardedUpstream:
    """
    The connections to the API server behind a guard: see `tunnel.http1.UpstreamPool`.

    :param pool: the connections.
    :param origins: the modules that make the requests; the guard has to permit a
        request to each of them.  A running request refers to this collection, which
        may change.
    """

    def __init__(
        self,
        pool: UpstreamPool,
        guard: RequestGuard,
        origins: Collection[RequestOrigin],
    ) -> None:
        self._pool = pool
        self._guard = guard
        self.origins = origins

    def check(
        self, method: bytes, target: bytes, fields: bytes, upgrade: bool = False
    ) -> None:
        """
        Check a request without sending it.

        :raises OwnerDenial: the policy denies it.
        """
        origins = tuple(self.origins)
        if not origins:
            raise OwnerDenial("no module makes this request")
        for origin in origins:
            self._guard.check(origin, method, target, fields, upgrade)

    def request(
        self,
        method: bytes,
        target: bytes,
        fields: bytes,
        receiver: ResponseReceiver,
        *,
        upgrade: bytes = b"",
        **rest: Any,
    ) -> UpstreamRequest:
        """
        Send a request as `UpstreamPool.request` does.

        :raises OwnerDenial: the policy denies the request; nothing was sent.
        """
        self.check(method, target, fields, bool(upgrade))
        request = self._pool.request(
            method,
            target,
            self._guard.marked(fields),
            receiver,
            upgrade=upgrade,
            **rest,
        )
        request.origins = self.origins
        return request

    def give_up(self, owned: Callable[[ResponseReceiver], bool]) -> None:
        """Fail the running requests for whose receivers *owned* returns True."""
        self._pool.give_up(owned)


class GuardedCluster:
    """
    The API server behind a guard: an `ICluster` without endpoints, because a module's
    own connection would have no guard.
    """

    def __init__(self, cluster: ICluster) -> None:
        self._cluster = cluster

    def endpoint(self) -> NoReturn:
        """
        Refuse to make a connection.

        :raises OwnerDenial: always.
        """
        raise OwnerDenial(
            "with a policy of the cluster's owner, modules send requests through "
            "`upstream`"
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
