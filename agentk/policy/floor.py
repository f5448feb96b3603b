"""Requests that no policy permits: those that would change or reveal the policy."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import attrs

from agentk.policy.questions import Question
from tunnel.kubernetes import Purpose

__all__ = [
    "ADMISSION_PREFIX",
    "STATE_SECRET",
    "WEBHOOK_SECRET",
    "Floor",
    "ProtectedObject",
]

#: Secret in agentk's own namespace with the highest serial of a policy.
STATE_SECRET: Final = "agentk-policy-state"  # noqa: S105 - the name of a Secret

#: Secret in agentk's own namespace with the keys of the admission webhook.
WEBHOOK_SECRET: Final = "agentk-policy-webhook"  # noqa: S105 - the name of a Secret

#: Prefix of the names of the webhook's registration, and of admission policies that
#: ``agentk-policy render admission`` creates.
ADMISSION_PREFIX: Final = "agentk-policy"

_READING: Final = frozenset({"get", "list", "watch"})
_READABLE: Final = frozenset({"", "log", "status", "scale"})
#: Verbs for a record, whose name is known.
_OF_RECORDS: Final = frozenset({"get", "create", "update", "patch", "delete"})
_ADMISSION: Final = "admissionregistration.k8s.io"
_ROLES: Final = "rbac.authorization.k8s.io"

#: Prefix of the names of GitOps' inventories, which GitLab's agent shares.
_INVENTORY: Final = "inventory-"

#: Kinds with agentk's token, its keys, its policy and its records.
_HIDDEN: Final = frozenset({"secrets", "configmaps"})

#: Paths of the kubelet that neither run anything nor show a pod's environment.
_KUBELET: Final = frozenset(
    {
        ("healthz",),
        ("metrics",),
        ("metrics", "cadvisor"),
        ("metrics", "probes"),
        ("metrics", "resource"),
        ("stats", "summary"),
    }
)

#: A group, a resource, a namespace (empty for none) and a name.
ProtectedObject = tuple[str, str, str, str]


@attrs.define(eq=False)
class Floor:
    """
    The protection of agentk itself.

    :param namespace: agentk's own namespace.
    :param is_closed: whether agentk runs in it, so that all of it is protected; if not,
        only the Secret with the serial is.
    :param records: other namespaces that modules use for records, as agentk's own
        configuration file says.
    :ivar objects: roles bound to agentk, and other objects that kas must not change.
    """

    namespace: str
    is_closed: bool
    objects: frozenset[ProtectedObject] = frozenset()
    records: Collection[str] = ()

    def is_record(self, question: Question) -> bool:
        """
        Return whether a request concerns a record of a module, and needs no rule.

        kas names other namespaces, so requests for records there need rules.
        """
        if question.origin.purpose is not Purpose.RECORDS or self._record(question):
            return False
        if question.resource == "leases":
            return True
        namespace = question.namespace
        return namespace == self.namespace or namespace in self.records

    def why_refused(self, question: Question) -> str:
        """Return why a request is refused; empty if it may be permitted."""
        if question.origin.purpose is Purpose.RECORDS:
            return self._record(question)
        kind = question.group, question.resource
        if kind == ("", "nodes") and question.subresource == "proxy":
            if question.verb != "get" or question.rest not in _KUBELET:
                return "the kubelet runs programs in every pod, agentk's as well"
        why = self._own(question) if self.is_closed else ""
        return why or self._named(question)

    def _record(self, question: Question) -> str:
        """Return why a module may not use an object as its record."""
        own = question.namespace == self.namespace
        name = question.name
        lease = question.group, question.resource, question.subresource
        if lease == ("coordination.k8s.io", "leases", "") and question.verb == "get":
            return ""
        if question.group or question.subresource:
            return "it is not a record"
        if question.verb not in _OF_RECORDS and question.verb != "list":
            return "it is not a record"
        if question.resource == "secrets" and own and question.verb != "list":
            pass
        elif question.resource != "configmaps":
            return "it is not a record"
        module = question.origin.module.replace("_", "-")
        if name and not name.startswith((f"{module}-", _INVENTORY)):
            return f"the names of records begin with {module}-"
        return self._named(question)

    def _own(self, question: Question) -> str:
        """Return why a request may not concern agentk's own namespace."""
        hidden = not question.group and question.resource in _HIDDEN
        reads = question.verb in _READING and question.subresource in _READABLE
        if question.covers_namespaces:
            if question.excluded == self.namespace:
                return ""
            if hidden or question.verb == "deletecollection":
                return f"it includes agentk's own namespace {self.namespace}"
            return ""
        if question.namespace != self.namespace:
            return ""
        if hidden or not reads or (question.upgrade and question.verb != "watch"):
            return f"agentk's own namespace {self.namespace} is protected"
        return ""

    def _named(self, question: Question) -> str:
        """Return why a request may not change a protected object."""
        if question.verb in _READING and not question.subresource:
            return ""
        group, resource = question.group, question.resource
        namespace, name = question.namespace, question.name
        collection = question.verb == "deletecollection"
        if group == _ADMISSION and resource.startswith("validating"):
            if name.startswith(ADMISSION_PREFIX) or (collection and not name):
                return "it would change how admission enforces the owner's policy"
        if (group, resource) == ("", "secrets") and (
            name in (STATE_SECRET, WEBHOOK_SECRET) or (collection and not name)
        ):
            if namespace == self.namespace or question.covers_namespaces:
                return "it would change agentk's own records of its policy"
        for one in self.objects:
            if one[:2] == (group, resource) and (
                one[2:] == (namespace, name)
                or (collection and not name and namespace in ("", one[2]))
            ):
                return "it would change permissions of agentk"
        return ""
