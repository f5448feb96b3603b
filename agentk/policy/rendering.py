"""
Objects for the cluster that follow from a policy.

RBAC permits agentk's account what the allow rules permit, and no more where RBAC can
express it; and what agentk needs for the policy itself.  A ValidatingAdmissionPolicy
refuses writes of agentk's account that no rule permits, also while agentk runs with
another policy or with none.  Neither knows times, users and programs; the policy in
agentk remains the complete check.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from agentk.policy.document import (
    AUTHENTICATED,
    UNAUTHENTICATED,
    NamePattern,
    PolicyFile,
    PolicyRule,
    ResourcePattern,
)
from agentk.policy.floor import ADMISSION_PREFIX, STATE_SECRET, WEBHOOK_SECRET
from agentk.policy.via import VIA, via_condition

__all__ = ["admission_objects", "rbac_objects", "wider_rules"]

#: Verbs of RBAC for ``*``, which must not include impersonate, bind and escalate.
_VERBS: Final = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
)
_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"

#: Operations of admission by verb; reads never reach admission.  PUT and server-side
#: apply may create an object, which needs the verb create as well.
_OPERATIONS: Final = {
    "create": ("CREATE",),
    "update": ("UPDATE",),
    "patch": ("UPDATE",),
    "delete": ("DELETE",),
    "deletecollection": ("DELETE",),
}
_CONNECTIONS: Final = ("attach", "exec", "portforward", "proxy")


#: Variables of the admission policy, because the API server omits empty fields.
_VARIABLES: Final = (
    ("subresource", "subResource"),
    ("place", "namespace"),
    ("object_name", "name"),
)
_NAMESPACE: Final = "variables.place"
_NAME: Final = "variables.object_name"
_IS_USER: Final = "variables.is_user"
_USER: Final = "request.userInfo.username"


#: Rights of agentk to find out which cluster it is in, and which roles to protect.
_OWN_RIGHTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "apiGroups": [""],
        "resources": ["namespaces"],
        "resourceNames": ["kube-system"],
        "verbs": ["get"],
    },
    {
        "apiGroups": [_RBAC],
        "resources": ["clusterrolebindings", "rolebindings"],
        "verbs": ["list"],
    },
)
#: Rights of users that ``discovery`` permits.
_DISCOVERY_RIGHTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "apiGroups": ["authentication.k8s.io", "authorization.k8s.io"],
        "resources": [
            "selfsubjectaccessreviews",
            "selfsubjectreviews",
            "selfsubjectrulesreviews",
        ],
        "verbs": ["create"],
    },
    {
        "nonResourceURLs": [
            *("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/healthz/*"),
            *("/livez", "/livez/*", "/openapi", "/openapi/*", "/readyz", "/readyz/*"),
            *("/version", "/version/"),
        ],
        "verbs": ["get"],
    },
)
#: Rights of agentk to keep the highest serial.
_STATE_RIGHTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [STATE_SECRET],
        "verbs": ["get", "update"],
    },
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
)


#: Rights of agentk to keep the keys of its admission webhook.
_WEBHOOK_RIGHTS: Final[tuple[dict[str, Any], ...]] = (
    {**_STATE_RIGHTS[0], "resourceNames": [WEBHOOK_SECRET]},
)


# RBAC.


def rbac_objects(
    policy: PolicyFile,
    namespace: str,
    account: str,
    *,
    constrained: bool = False,
    webhook: bool = False,
) -> list[dict[str, Any]]:
    """
    Return roles for the account of agentk, and their bindings.

    :param namespace: the namespace of agentk.
    :param account: its service account.
    :param constrained: whether to use constrained impersonation (KEP-5284), which
        Kubernetes 1.36 has: agentk may act as users only for what the rules permit.
    :param webhook: whether agentk serves an admission webhook.
    """
    whole: list[dict[str, Any]] = []
    by_namespace: dict[str, list[dict[str, Any]]] = {}
    for rule in policy.rules:
        if rule.denies:
            continue
        rules: list[dict[str, Any]] = []
        # agentk itself is not a user, so it needs no rights of rules for users.
        if not (rule.users or rule.groups):
            rules += _rbac_rules(rule)
        if constrained:
            rules += map(_on_behalf, _rbac_rules(rule))
        if rule.namespaces and all(one.is_literal for one in rule.namespaces):
            for one in rule.namespaces:
                by_namespace.setdefault(one.text, []).extend(rules)
        else:
            whole += rules
    whole += _impersonation(policy, constrained)
    if constrained and policy.discovery:
        whole += map(_on_behalf, _DISCOVERY_RIGHTS)
    whole += _OWN_RIGHTS
    # What agentk needs for its policy: see `agentk.policy.state`.
    by_namespace.setdefault(namespace, []).extend(_STATE_RIGHTS)
    if webhook:
        by_namespace[namespace] += _WEBHOOK_RIGHTS
        whole += _registration(namespace, constrained)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    objects: list[dict[str, Any]] = []
    objects += _role("ClusterRole", "", whole, subject)
    for name, rules in sorted(by_namespace.items()):
        objects += _role("Role", name, rules, subject)
    return objects


def _role(
    kind: str, namespace: str, rules: list[dict[str, Any]], subject: dict[str, str]
) -> Iterator[dict[str, Any]]:
    metadata = {"name": ADMISSION_PREFIX}
    if namespace:
        metadata["namespace"] = namespace
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": rules,
    }
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": ADMISSION_PREFIX},
        "subjects": [subject],
    }


def _rbac_rules(rule: PolicyRule) -> Iterator[dict[str, Any]]:
    verbs = [
        one
        for one in (_VERBS if "*" in rule.verbs else rule.verbs)
        if one not in rule.except_verbs and one != "connect"
    ]
    if not verbs:
        return
    if rule.paths:
        # RBAC knows * only at the end.
        paths = [
            one.text if one.text.find("*") in (-1, len(one.text) - 1) else "*"
            for one in rule.paths
        ]
        yield {
            "nonResourceURLs": paths,
            "verbs": [
                one
                for one in verbs
                if one in ("get", "post", "put", "patch", "delete", "head")
            ]
            or ["get"],
        }
        return
    names = [one.text for one in rule.names] if _literal(rule.names) else []
    for pattern in rule.resources:
        found: dict[str, Any] = {
            "apiGroups": [_group_of(pattern)],
            "resources": [_resource_of(pattern)],
            "verbs": verbs,
        }
        if names:
            found["resourceNames"] = names
        yield found


def _literal(globs: Iterable[NamePattern]) -> bool:
    return all(one.is_literal for one in globs)


def _group_of(pattern: ResourcePattern) -> str:
    if pattern.group is None:
        return "*" if pattern.resource == "*" else ""
    return pattern.group


def _resource_of(pattern: ResourcePattern) -> str:
    if pattern.resource == "*":
        # In RBAC, * includes subresources, and */* does not exist.
        if pattern.subresource in ("", "*"):
            return "*"
        return f"*/{pattern.subresource}"
    if pattern.subresource:
        return f"{pattern.resource}/{pattern.subresource}"
    return pattern.resource


def _on_behalf(rule: dict[str, Any]) -> dict[str, Any]:
    """Return the right to use the rights of a rule as a user."""
    verbs = [f"impersonate-on:user-info:{one}" for one in rule["verbs"]]
    return {**rule, "verbs": verbs}


def _impersonation(policy: PolicyFile, constrained: bool) -> Iterator[dict[str, Any]]:
    identities = policy.identities
    if identities is None:
        return
    for resource, globs in ("users", identities.users), ("groups", identities.groups):
        if not globs:
            continue
        found: dict[str, Any] = {
            "apiGroups": ["authentication.k8s.io" if constrained else ""],
            "resources": [resource],
            "verbs": ["impersonate:user-info" if constrained else "impersonate"],
        }
        if _literal(globs):
            found["resourceNames"] = [one.text for one in globs]
        yield found


def _registration(namespace: str, constrained: bool) -> Iterator[dict[str, Any]]:
    """Yield the rights to register the admission webhook, and to mark requests."""
    webhooks = {
        "apiGroups": [_ADMISSION],
        "resources": ["validatingwebhookconfigurations"],
    }
    name = f"{ADMISSION_PREFIX}-{namespace}"
    yield {**webhooks, "verbs": ["create"]}
    yield {**webhooks, "resourceNames": [name], "verbs": ["get", "patch"]}
    yield {
        "apiGroups": ["authentication.k8s.io"],
        "resources": [f"userextras/{VIA}"],
        "resourceNames": [namespace],
        "verbs": ["impersonate:user-info" if constrained else "impersonate"],
    }


def wider_rules(policy: PolicyFile) -> Iterator[str]:
    """Yield how the roles are wider than a policy, one line each."""
    for rule in policy.rules:
        if rule.denies:
            yield f"RBAC has no deny rules: {rule.name!r} is left out"
            continue
        if rule.users or rule.groups:
            continue
        missing = [
            name
            for name, value in (
                ("except", rule.except_resources),
                ("except_namespaces", rule.except_namespaces),
                ("window", rule.window),
                ("argv0", rule.argv0),
                ("patterns of namespaces", not _literal(rule.namespaces)),
                ("patterns of names", not _literal(rule.names)),
            )
            if value
        ]
        if missing:
            yield f"the roles are wider than {rule.name!r}: {', '.join(missing)}"


# Admission.


def admission_objects(
    policy: PolicyFile, namespace: str, account: str
) -> list[dict[str, Any]]:
    """
    Return a ValidatingAdmissionPolicy for the account of agentk and the users that it
    impersonates, and its binding.

    :param namespace: the namespace of agentk.
    :param account: its service account.
    """
    allows = [one for one in policy.rules if not one.denies]
    denies = [one for one in policy.rules if one.denies]
    own = (
        f"!{_IS_USER} && {_NAMESPACE} == {_text(namespace)} && ("
        "(request.resource.group == '' && request.resource.resource in "
        "['configmaps', 'secrets']) || "
        "request.resource.group == 'coordination.k8s.io')"
    )
    reviews = (
        "request.resource.group in ['authentication.k8s.io', 'authorization.k8s.io']"
    )
    permitted = " ||\n".join(
        f"({one})" for one in (reviews, own, *filter(None, map(_condition, allows)))
    )
    validations = [
        {
            "expression": permitted,
            "message": "no rule of the policy of the cluster's owner permits this",
            "reason": "Forbidden",
        }
    ]
    for rule in denies:
        # agentk and its admission webhook enforce rules that depend on more.
        if rule.window or rule.argv0 or rule.modules:
            continue
        condition = _condition(rule)
        if condition:
            validations.append(
                {
                    "expression": f"({own}) || !({condition})",
                    "message": f"the rule {rule.name!r} of the policy of the "
                    "cluster's owner denies this",
                    "reason": "Forbidden",
                }
            )
    metadata = {"name": f"{ADMISSION_PREFIX}-{namespace}-{account}"}
    user = f"system:serviceaccount:{namespace}:{account}"
    return [
        {
            "apiVersion": f"{_ADMISSION}/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": ["*"],
                            "apiVersions": ["*"],
                            "resources": ["*/*"],
                            "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"],
                        }
                    ]
                },
                "matchConditions": [
                    {
                        "name": "agentk",
                        "expression": f"request.userInfo.username == {_text(user)} || "
                        f"({via_condition(namespace)})",
                    }
                ],
                "variables": [
                    {
                        "name": name,
                        "expression": f"has(request.{field}) ? request.{field} : ''",
                    }
                    for name, field in _VARIABLES
                ]
                + [{"name": "is_user", "expression": via_condition(namespace)}],
                "validations": validations,
            },
        },
        {
            "apiVersion": f"{_ADMISSION}/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": metadata["name"], "validationActions": ["Deny"]},
        },
    ]


def _text(text: str) -> str:
    """Return a literal of CEL."""
    return json.dumps(text)


def _condition(rule: PolicyRule) -> str:
    """
    Return the condition of a rule in CEL; empty if the rule never concerns a write.
    """
    if rule.paths:
        return ""
    parts: list[str] = []
    operations = sorted(_operations(rule))
    if not operations:
        return ""
    parts.append(f"request.operation in {json.dumps(operations)}")
    parts.append(_any(_kind(one, wide=rule.denies) for one in rule.resources))
    if rule.except_resources:
        excluded = _any(
            _kind(one, wide=not rule.denies) for one in rule.except_resources
        )
        parts.append(f"!({excluded})")
    if rule.namespaces:
        parts.append(_any(_matches(_NAMESPACE, one) for one in rule.namespaces))
    if rule.except_namespaces:
        excluded = _any(_matches(_NAMESPACE, one) for one in rule.except_namespaces)
        parts.append(f"!({excluded})")
    if rule.names:
        named = _any(_matches(_NAME, one) for one in rule.names)
        parts.append(f"({_NAME} == '' || {named})" if rule.denies else named)
    if rule.users:
        parts += [_IS_USER, _any(_matches(_USER, one) for one in rule.users)]
    if rule.groups:
        any_group = _any(_matches_group(one) for one in rule.groups)
        parts += [_IS_USER, f"request.userInfo.groups.exists(group, {any_group})"]
    return " && ".join(parts)


def _any(conditions: Iterable[str]) -> str:
    return "(" + " || ".join(conditions) + ")"


def _operations(rule: PolicyRule) -> set[str]:
    every = "*" in rule.verbs
    verbs = {
        one
        for one in (_OPERATIONS if every else rule.verbs)
        if one not in rule.except_verbs
    }
    found = {one for verb in verbs for one in _OPERATIONS.get(verb, ())}
    if any(_may_connect(one, rule.denies) for one in rule.resources) and (
        every or verbs & {"create", "get"}
    ):
        found.add("CONNECT")
    return found


def _may_connect(pattern: ResourcePattern, wide: bool) -> bool:
    return pattern.subresource in (*_CONNECTIONS, "*") or (
        wide and not pattern.subresource
    )


def _kind(pattern: ResourcePattern, wide: bool) -> str:
    parts: list[str] = []
    if pattern.resource != "*":
        parts.append(f"request.resource.resource == {_text(pattern.resource)}")
        if pattern.group is None and not wide:
            parts.append("request.resource.group == ''")
    if pattern.group not in (None, "*"):
        parts.append(f"request.resource.group == {_text(pattern.group or '')}")
    if pattern.subresource == "*":
        if pattern.resource != "*":
            parts.append("variables.subresource != ''")
    elif pattern.subresource or not wide:
        parts.append(f"variables.subresource == {_text(pattern.subresource)}")
    return "(" + " && ".join(parts or ["true"]) + ")"


def _matches_group(glob: NamePattern) -> str:
    """Return the condition of `Patterns.match_group` in CEL."""
    condition = _matches("group", glob)
    if glob.is_literal or glob.text == "*":
        return condition
    added = json.dumps([AUTHENTICATED, UNAUTHENTICATED])
    return f"({condition} && !(group in {added}))"


def _matches(value: str, glob: NamePattern) -> str:
    if glob.is_literal:
        return f"{value} == {_text(glob.text)}"
    prefix, _, suffix = glob.text.partition("*")
    parts = [f"size({value}) >= {len(prefix) + len(suffix)}"]
    if not prefix and not suffix:
        # A namespace pattern never matches an object without a namespace.
        return f"{value} != ''"
    if prefix:
        parts.append(f"{value}.startsWith({_text(prefix)})")
    if suffix:
        parts.append(f"{value}.endsWith({_text(suffix)})")
    return "(" + " && ".join(parts) + ")"
