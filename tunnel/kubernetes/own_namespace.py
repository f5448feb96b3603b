"""
Protection of agentk's own namespace against requests with agentk's own permissions.

The namespace contains the agent's token, orders, kept states and inventories.  agentk
needs permissions in its namespace that clients must not get through agentk: the records
decide what agentk applies, and a program that runs in the namespace can use agentk's
token.  In other namespaces, the permissions of agentk's account apply unchanged.
"""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

import attrs
from zope.interface import implementer

from tunnel.api import IOwnNamespace
from tunnel.kubernetes.request_info import (
    only_reads,
    query_value,
    readings,
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
    :param protects_all: whether to protect the namespace from every user, and its
        ConfigMaps as its Secrets, because the cluster's owner has a policy there.
    :ivar records: other namespaces that modules use for records.
    """

    name: str
    is_closed: bool = False
    _may_close: bool = True
    _protects_all: bool = False
    records: set[str] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.is_closed = self.is_closed and self._may_close

    def keep_records(self, other: str = "") -> str:
        """See `IOwnNamespace`."""
        if other:
            self.records.add(other)
        self.is_closed = self._may_close
        return self.name

    def acts_as_agentk(self, username: str) -> bool:
        """See `IOwnNamespace`."""
        return (
            self._protects_all
            or not username
            or username.startswith(f"system:serviceaccount:{self.name}:")
        )

    def checked(self, method: bytes, target: bytes, upgrade: bool = False) -> bytes:
        """
        Return the target to request in place of *target*: see `IOwnNamespace`.

        :raises OwnNamespaceRefusal: the request must not be made.
        """
        # This comparison excludes nearly every request; an escape may hide the words.
        if not self.is_closed or not (
            self.name.encode() in target
            or b"secrets" in target
            or b"%" in target
            or self._protects_all
        ):
            return target
        shows_all = False
        for info, read in readings(method, target):
            secrets = not info.group and self._is_hidden(info.resource)
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

    def without_hidden(self, method: bytes, target: bytes) -> bytes:
        """See `IOwnNamespace`."""
        if not (self.is_closed and self._protects_all):
            return target
        for info, _ in readings(method, target):
            hidden = not info.group and self._is_hidden(info.resource)
            if hidden and not info.namespace and info.verb in ("list", "watch"):
                return self._without_own(target)
        return target

    def _is_hidden(self, resource: str) -> bool:
        """Return whether objects of the core group are not even read."""
        return resource == "secrets" or (
            self._protects_all and resource == "configmaps"
        )

    def _why(self, secrets: bool) -> str:
        if self._protects_all:
            return (
                f"agentk's own namespace {self.name} is protected, because it contains "
                "agentk's token and the policy of the cluster's owner"
            )
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
