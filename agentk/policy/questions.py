"""Requests as the policy sees them: parsed only by `tunnel.kubernetes.request_info`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import unquote

import attrs

from agentk.policy.document import AUTHENTICATED, UNAUTHENTICATED
from agentk.policy.via import VIA
from tunnel.kubernetes import (
    RequestInfo,
    RequestOrigin,
    Right,
    excluded_namespace,
    is_discovery,
    is_self_review,
    query_value,
    readings,
)

__all__ = [
    "AGENTK",
    "CONNECTIONS",
    "Identity",
    "Question",
    "added_groups",
    "identity_of",
    "impersonation_in",
    "questions_of",
    "with_creation",
]

_IMPERSONATION: Final = re.compile(
    rb"\r\nimpersonate[-_]([^:\r\n]*):([^\r\n]*)", re.IGNORECASE
)
_VERBS: Final = {
    b"DELETE": "delete",
    b"GET": "get",
    b"HEAD": "get",
    b"PATCH": "patch",
    b"POST": "create",
    b"PUT": "update",
}
_CONTENT_TYPE: Final = re.compile(rb"\r\ncontent-type:([^\r\n]*)", re.IGNORECASE)

#: Subresources that open a connection into a pod: Kubernetes requires the verb create,
#: whatever the method is.
CONNECTIONS: Final = frozenset({"attach", "exec", "portforward"})

#: Names of service accounts; the API server takes any other name for a user's.
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_ACCOUNT: Final = re.compile(
    rf"system:serviceaccount:(?=[^:]{{1,63}}:)({_LABEL}):"
    rf"(?=[^:]{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*"
)

_COLLECTIONS: Final = frozenset({"list", "watch", "deletecollection"})

#: Kinds without a namespace in every cluster, so that a list of them does not cover any
#: namespace.
_CLUSTER_SCOPED: Final = frozenset(
    {
        ("", "componentstatuses"),
        ("", "namespaces"),
        ("", "nodes"),
        ("", "persistentvolumes"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("metrics.k8s.io", "nodes"),
        ("networking.k8s.io", "ingressclasses"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
    }
)


@attrs.frozen
class Identity:
    """
    The user that a request impersonates.

    :ivar user: None without impersonation: the request has agentk's own permissions.
    :ivar named: the groups that the request names.
    :ivar problem: why the fields have no certain meaning; empty if they have one.
    :ivar groups: the groups that the user has at the API server: those named, and
        those that the API server adds.
    """

    user: str | None = None
    named: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    problem: str = ""
    groups: tuple[str, ...] = attrs.field(init=False)

    @groups.default
    def _groups(self) -> tuple[str, ...]:
        return (*self.named, *added_groups(self.user, self.named))


def added_groups(user: str | None, named: Collection[str]) -> Iterator[str]:
    """
    Yield the groups that the API server adds to an impersonated user.

    Source: kubernetes/apiserver, pkg/endpoints/filters/impersonation.
    """
    if user is None:
        return
    account = _ACCOUNT.fullmatch(user)
    if account is not None and not named:
        yield "system:serviceaccounts"
        yield f"system:serviceaccounts:{account[1]}"
    if user == "system:anonymous":
        if UNAUTHENTICATED not in named:
            yield UNAUTHENTICATED
    elif AUTHENTICATED not in named and UNAUTHENTICATED not in named:
        yield AUTHENTICATED


#: A request without impersonation.
AGENTK: Final = Identity()


def identity_of(fields: bytes) -> Identity:
    """
    Return the user of a request.

    :param fields: header lines, each preceded by CR LF.
    """
    return _identity(impersonation_in(fields))


def impersonation_in(fields: bytes) -> bytes:
    """Return the part of header lines that determines the user; empty without one."""
    start = fields.lower().find(b"\r\nimpersonate")
    return fields[start:] if start >= 0 else b""


def _identity(fields: bytes) -> Identity:
    if not fields:
        return AGENTK
    users: list[str] = []
    groups: list[str] = []
    extra: list[str] = []
    others = False
    for found in _IMPERSONATION.finditer(fields):
        name = found[1].strip().lower()
        value = found[2].strip(b" \t").decode("utf-8", "surrogateescape")
        if name == b"user":
            users.append(value)
        elif name == b"group":
            groups.append(value)
        elif name.startswith(b"extra-"):
            key = unquote(name[6:].decode("latin-1")).lower()
            # agentk itself writes this one.
            if key != VIA:
                extra.append(key)
        else:
            others = others or name != b"uid"
    problem = ""
    if others:
        problem = "it has an unknown field Impersonate-*"
    elif len(users) != 1 or not users[0]:
        problem = "it has no user, or several, but other fields Impersonate-*"
    return Identity(users[0] if users else "", tuple(groups), tuple(extra), problem)


@attrs.define(eq=False)
class Question:
    """
    What a request does, and for whom.

    :ivar verb: as in `RequestInfo`; ``connect`` for a connection to a Service.
    :ivar path: the decoded path; empty for rights and Services.
    :ivar rest: the parts of the path after the subresource.
    :ivar covers_namespaces: whether the request may concern all namespaces.
    :ivar argv0: the program that ``pods/exec`` runs; empty if it names none.
    :ivar port: the port of a Service; 0 for all else.
    :ivar excluded: the namespace that a collection excludes by a field selector.
    """

    origin: RequestOrigin
    identity: Identity
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    rest: tuple[str, ...] = ()
    upgrade: bool = False
    discovers: bool = False
    covers_namespaces: bool = False
    argv0: str = ""
    port: int = 0
    excluded: str = ""

    @classmethod
    def about(cls, origin: RequestOrigin, identity: Identity, right: Right) -> Question:
        """Return the question whether *identity* may use a right."""
        return cls(
            origin,
            identity,
            right.verb,
            right.group,
            right.resource,
            right.subresource,
            right.namespace,
            right.name,
            discovers=right.verb == "create"
            and is_self_review(right.group, right.resource),
            covers_namespaces=_covers(
                right.verb, right.group, right.resource, right.namespace
            ),
        )

    @classmethod
    def to_path(
        cls, origin: RequestOrigin, identity: Identity, verb: str, path: str
    ) -> Question:
        """Return the question about a path outside of resources."""
        method = verb.upper().encode("ascii", "replace")
        info = RequestInfo(verb, path)
        discovers = is_discovery(method, info)
        return cls(origin, identity, verb, path=path, discovers=discovers)

    @classmethod
    def to_service(
        cls, origin: RequestOrigin, namespace: str, name: str, port: int
    ) -> Question:
        """Return the question about a connection to a Service."""
        return cls(
            origin,
            AGENTK,
            "connect",
            resource="services",
            namespace=namespace,
            name=name,
            port=port,
        )

    @property
    def what(self) -> str:
        """The request in words."""
        if not self.resource:
            return f"{self.verb} {self.path or '/'}"
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        if self.subresource:
            kind += f"/{self.subresource}"
        name = f' "{self.name}"' if self.name else ""
        if self.namespace:
            where = f' in the namespace "{self.namespace}"'
        elif self.covers_namespaces:
            where = " in all namespaces"
        else:
            where = ""
        port = f", port {self.port}" if self.port else ""
        return f"{self.verb} {kind}{name}{where}{port}"


def _covers(verb: str, group: str, resource: str, namespace: str) -> bool:
    return (
        not namespace
        and verb in _COLLECTIONS
        and (group, resource) not in _CLUSTER_SCOPED
    )


def questions_of(
    origin: RequestOrigin,
    identity: Identity,
    method: bytes,
    target: bytes,
    fields: bytes,
    upgrade: bool,
) -> Iterator[Question]:
    """
    Yield everything that a request may mean; all of it has to be permitted.

    The API server's interpretation comes first.  A server in front of the API server
    may resolve dots, empty parts and backslashes of the path.  PUT and server-side
    apply may also create the object.
    """
    for info, read in readings(method, target):
        question = _question(origin, identity, method, info, read, upgrade)
        yield from with_creation(question)
        if question.verb == "patch" and _is_apply(fields):
            yield attrs.evolve(question, verb="create")


def with_creation(question: Question) -> Iterator[Question]:
    """Yield a question; for an update, also whether it may create the object."""
    yield question
    if question.verb == "update" and question.resource and not question.subresource:
        yield attrs.evolve(question, verb="create")


def _question(
    origin: RequestOrigin,
    identity: Identity,
    method: bytes,
    info: RequestInfo,
    target: bytes,
    upgrade: bool,
) -> Question:
    verb, subresource = info.verb, info.subresource
    rest = info.parts[3:]
    if not info.is_resource:
        return Question(
            origin,
            identity,
            verb,
            path=info.path,
            upgrade=upgrade,
            discovers=is_discovery(method, info, upgrade),
        )
    if verb == "proxy":
        # The verb in the path of API servers before 1.10.
        verb, subresource, rest = _VERBS.get(method, ""), "proxy", info.parts[2:]
    elif subresource in CONNECTIONS:
        verb = "create"
    query = target.partition(b"?")[2]
    argv0 = excluded = ""
    if subresource == "exec" and query:
        argv0 = (query_value(query, b"command") or b"").decode("utf-8", "replace")
    covers = _covers(verb, info.group, info.resource, info.namespace)
    if covers and b"metadata.namespace" in query:
        excluded = excluded_namespace(query)
    return Question(
        origin,
        identity,
        verb,
        info.group,
        info.resource,
        subresource,
        info.namespace,
        info.name,
        info.path,
        rest,
        upgrade,
        method == b"POST" and is_discovery(method, info, upgrade),
        covers,
        argv0,
        0,
        excluded,
    )


def _is_apply(fields: bytes) -> bool:
    found = _CONTENT_TYPE.findall(fields)
    return any(b"apply-patch" in one.lower() for one in found)
