"""Reports of the credentials that changed an object through kas, from kas to agentk."""

from __future__ import annotations

import re
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import lru_cache
from urllib.parse import quote, unquote

import attrs

from tunnel.api import KubernetesWrite
from tunnel.http1 import RequestHead
from tunnel.kubernetes import query_value, request_info

__all__ = ["CREDENTIAL", "READS", "Write", "credential_field"]

#: Header field from kas to agentk; both remove it from the requests of other senders.
CREDENTIAL = b"txkas-credential"

#: Methods that change nothing, and cause no report.
READS = frozenset((b"GET", b"HEAD", b"OPTIONS"))

#: Maximum characters of a field manager: the limit of API servers.
MAX_MANAGER = 128

#: Seconds that an API server may continue a request after agentk has stopped waiting
#: for its response: admission webhooks, which run before the change, have 10 by
#: default.
LATE = 10.0

#: Maximum difference between the clocks of agentk and the API server, in seconds.
SKEW = 2.0

#: Maximum bytes of the options of a delete, which are the body of the request: clients
#: send about a hundred.
MAX_OPTIONS = 4096

#: Subresources whose POST, PUT or DELETE does not change the object.
_ASIDE = frozenset(("attach", "exec", "log", "portforward", "proxy", "token"))

#: API servers' name for the field manager of a client without a user agent.
UNKNOWN = b"unknown"

_DATE = re.compile(rb"\r\nDate: ?([^\r\n]{1,40})", re.IGNORECASE)
_USER_AGENT = re.compile(rb"\r\nUser-Agent: ?([^\r\n/]{1,128})", re.IGNORECASE)


@lru_cache(maxsize=1000)
def credential_field(credential_id: str) -> bytes:
    """Return the header line with a credential, preceded by CR LF."""
    value = quote(credential_id[:200], safe=":@.-_").encode()
    return b"\r\nTxkas-Credential: " + value


@attrs.define(eq=False)
class Write:
    """A request that may change an object, until its response arrives."""

    _head: RequestHead
    _begun: float
    #: Beginning of the request's body, if the request is a delete.
    _options: bytes = b""

    @classmethod
    def of(cls, head: RequestHead, seconds: Callable[[], float]) -> Write | None:
        """
        Return the change that a request makes; None if it changes nothing, or if its
        credential is unknown.
        """
        if head.method in READS or CREDENTIAL not in head.taken:
            return None
        return cls(head, seconds())

    def sent(self, data: bytes) -> None:
        """Record a part of the request's body."""
        if self._head.method == b"DELETE" and len(self._options) <= MAX_OPTIONS:
            self._options += data[: MAX_OPTIONS + 1]

    def answered(
        self, status: int, fields: bytes, now: float
    ) -> KubernetesWrite | None:
        """
        Return the change that a response confirms; None if nothing or not a single
        named object changed.
        """
        date = _DATE.search(fields)
        if not 200 <= status < 300 or date is None:
            return None
        try:
            time = parsedate_to_datetime(date[1].decode("latin-1")).timestamp()
        except (ValueError, OverflowError):
            return None
        return self._of_object(time, now - self._begun, answered=True)

    def unanswered(self, now: float, wall: float) -> KubernetesWrite | None:
        """
        Return the change that a request without a response may have made.

        :param now: the current time, by the clock of `of`.
        :param wall: seconds since 1970, by agentk's clock.
        """
        after = LATE + SKEW
        return self._of_object(
            wall + after, now - self._begun + after + SKEW, answered=False
        )

    def _of_object(
        self, time: float, seconds: float, *, answered: bool
    ) -> KubernetesWrite | None:
        """
        Return the change of a single named object; None if the request does not name
        one.
        """
        info = request_info(self._head.method, self._head.target)
        if not info.name:
            return None
        query = self._head.target.partition(b"?")[2]
        if info.subresource in _ASIDE or self._is_dry_run(query):
            return None
        manager = query_value(query, b"fieldManager")
        if not manager:
            agent = _USER_AGENT.search(b"\r\n" + self._head.fields)
            manager = agent[1] if agent is not None else UNKNOWN
        return KubernetesWrite(
            unquote(self._head.taken[CREDENTIAL][0].decode("latin-1")),
            info.verb,
            info.group,
            info.resource,
            info.namespace,
            info.name,
            info.subresource,
            manager.decode("utf-8", "replace")[:MAX_MANAGER],
            time,
            seconds,
            answered,
        )

    def _is_dry_run(self, query: bytes) -> bool:
        """Return whether the request is, or may be, a dry run."""
        # ``All`` is the only possible value, in JSON and in protobuf.
        return (
            query_value(query, b"dryRun") is not None
            or len(self._options) > MAX_OPTIONS
            or b"All" in self._options
        )
