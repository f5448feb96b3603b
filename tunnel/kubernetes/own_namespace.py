"""
Protection of agentk's own namespace against requests with agentk's own permissions.

The namespace contains the agent's token, orders, kept states and inventories.  agentk
needs permissions in its namespace that clients must not get through agentk: the records
decide what agentk applies, and a program that runs in the namespace can use agentk's
token.  In other namespaces, the permissions of agentk's account apply unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, unquote_to_bytes

import attrs
from zope.interface import implementer

from tunnel.api import IOwnNamespace
from tunnel.kubernetes.request_info import (
    RequestInfo,
    only_reads,
    query_value,
    request_info,
)

__all__ = ["OwnNamespace", "OwnNamespaceRefusal"]

_SELECTOR = b"fieldSelector"


class OwnNamespaceRefusal(Exception):
    """Raised for a request that agentk must not make with its own permissions."""


@implementer(IOwnNamespace)
@attrs.define(eq=False)
class OwnNamespace:
    """
    The namespace of one agentk, and the requests that are refused in it.

    :param name: the namespace of the Lease and the records.
    :param is_closed: whether to refuse requests from the start: True if agentk runs in
        the namespace.  If agentk runs outside of the cluster, *name* may be the
        namespace of any other program, and is closed only when a module keeps records
        there.
    :param may_close: whether to protect the namespace; the operator may disable it.
    """

    name: str
    is_closed: bool = False
    _may_close: bool = True

    def __attrs_post_init__(self) -> None:
        self.is_closed = self.is_closed and self._may_close

    def keep_records(self) -> str:
        """See `IOwnNamespace`."""
        self.is_closed = self._may_close
        return self.name

    def acts_as_agentk(self, username: str) -> bool:
        """See `IOwnNamespace`."""
        return not username or username.startswith(
            f"system:serviceaccount:{self.name}:"
        )

    def checked(self, method: bytes, target: bytes, upgrade: bool = False) -> bytes:
        """
        Return the target to request in place of *target*: see `IOwnNamespace`.

        :raises OwnNamespaceRefusal: the request must not be made.
        """
        # This comparison excludes nearly every request; an escape may hide the words.
        if not self.is_closed or not (
            self.name.encode() in target or b"secrets" in target or b"%" in target
        ):
            return target
        shows_all = False
        for info, read in _readings(method, target):
            secrets = (info.group, info.resource) == ("", "secrets")
            kubelet = (info.resource, info.subresource) == ("nodes", "proxy")
            if kubelet and self.name in info.parts:
                # The kubelet reads the namespace from the rest of the path.
                raise OwnNamespaceRefusal(self._why(False))
            if info.namespace == self.name and (
                secrets or not only_reads(method, read, upgrade)
            ):
                raise OwnNamespaceRefusal(self._why(secrets))
            shows_all = shows_all or (secrets and not info.namespace)
        return self._without_own(target) if shows_all else target

    def _why(self, secrets: bool) -> str:
        what = (
            "Secrets are neither read nor written with"
            if secrets
            else "nothing is changed or run with"
        )
        return (
            f"in agentk's own namespace {self.name} {what} agentk's own permissions, "
            "because it contains the agent's token and records; act as a user "
            "(kasctl user add --as, or access_as of the agent's configuration), or "
            "set kubernetes.allow_own_namespace: true in agentk's configuration file"
        )

    def _without_own(self, target: bytes) -> bytes:
        """
        Exclude the Secrets of the own namespace from a list or watch of all Secrets.
        """
        path, _, query = target.partition(b"?")
        # Our selector comes first, so that it cannot become a part of a malformed
        # selector of the client.
        selector = b"metadata.namespace!=" + self.name.encode()
        if asked := query_value(query, _SELECTOR):
            selector += b"," + asked
        others = [
            one
            for one in query.split(b"&")
            if one and unquote_to_bytes(one.partition(b"=")[0]) != _SELECTOR
        ]
        ours = b"%b=%b" % (_SELECTOR, quote(selector, safe="").encode("ascii"))
        return b"%b?%b" % (path, b"&".join([ours, *others]))


def _readings(method: bytes, target: bytes) -> Iterator[tuple[RequestInfo, bytes]]:
    """
    Yield the possible interpretations of a request: by the API server, and by a server
    in front of it.
    """
    yield request_info(method, target), target
    raw, mark, query = target.partition(b"?")
    path = unquote_to_bytes(raw)
    parts: list[bytes] = []
    for segment in path.replace(b"\\", b"/").split(b"/"):
        name = segment.partition(b";")[0]
        if name == b"..":
            del parts[-1:]
        elif name not in (b"", b"."):
            parts.append(name)
    plain = b"/" + b"/".join(parts)
    if plain != path:
        read = quote(plain).encode("ascii") + mark + query
        yield request_info(method, read), read
