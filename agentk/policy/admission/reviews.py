"""AdmissionReviews of ``admission.k8s.io/v1``: what they ask, and the responses."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from agentk.policy.engine import PolicyDecision
from agentk.policy.questions import Identity, Question, added_groups
from agentk.policy.via import VIA
from tunnel.kubernetes import Purpose, RequestOrigin, is_self_review

__all__ = ["MAX_REASON", "alternatives", "response"]

#: Maximum characters of a reason: API servers show at most 256 of a warning.
MAX_REASON: Final = 250

#: Verbs of an operation, if the options of the request do not name it.
_VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "CREATE": ("create",),
    "UPDATE": ("update", "patch"),
    "DELETE": ("delete",),
}
_OPTIONS: Final = {"UpdateOptions": "update", "PatchOptions": "patch"}

#: Verbs of a connection: admission does not know the method of a proxied request.
_CONNECTION: Final = ("create",)
_PROXIED: Final = ("get", "create", "update", "patch", "delete")


def alternatives(review: Any, modules: Collection[str]) -> tuple[str, list[Question]]:
    """
    Return the uid of a review, and everything that its request may be.

    Admission does not know which module of agentk sent the request, and the method of
    a connection.  The policy permitted the request before agentk sent it, so one
    permitted alternative suffices.

    :param modules: the modules that rules of the policy name.
    :raises ValueError: it is not a review.
    """
    try:
        request = review["request"]
        user = request["userInfo"]
        identity = _identity(user)
        found = list(_questions(request, identity, modules))
        return str(request["uid"]), found
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an AdmissionReview: {error!r}") from None


def _identity(user: Mapping[str, Any]) -> Identity:
    name = str(user["username"])
    # The API server added these groups, so kas did not claim them.
    added = frozenset(added_groups(name, ()))
    groups = tuple(
        str(one) for one in user.get("groups") or () if str(one) not in added
    )
    extra = tuple(str(one) for one in user.get("extra") or () if one != VIA)
    return Identity(name, groups, extra)


def _questions(
    request: Mapping[str, Any], identity: Identity, modules: Collection[str]
) -> Iterator[Question]:
    resource = request.get("requestResource") or request["resource"]
    subresource = str(
        request.get("requestSubResource") or request.get("subResource") or ""
    )
    content = request.get("object") or request.get("oldObject") or {}
    name = str(request.get("name") or "")
    verbs = _verbs(request, subresource)
    group, plural = str(resource.get("group") or ""), str(resource["resource"])
    discovers = verbs == _VERBS["CREATE"] and is_self_review(group, plural)
    if verbs == _VERBS["DELETE"] and not name:
        # The API server asks about each object of a deletecollection.
        verbs = ("deletecollection",)
    if not name and isinstance(content.get("metadata"), dict):
        name = str(content["metadata"].get("name") or "")
    command = content.get("command") if content.get("kind") == "PodExecOptions" else ()
    # The path behind a proxy.
    path = content.get("path") if subresource == "proxy" else ""
    rest = tuple(filter(None, str(path or "").split("/")))
    for module in sorted({"kubernetes_api", *modules}):
        purpose = Purpose.CALLER if module == "kubernetes_api" else Purpose.MODULE
        for verb in verbs:
            yield Question(
                RequestOrigin(module, purpose),
                identity,
                verb,
                group=group,
                resource=plural,
                subresource=subresource,
                namespace=str(request.get("namespace") or ""),
                name=name,
                rest=rest,
                argv0=str(command[0]) if command else "",
                discovers=discovers,
            )


def _verbs(request: Mapping[str, Any], subresource: str) -> tuple[str, ...]:
    operation = str(request["operation"])
    if operation == "CONNECT":
        return _PROXIED if subresource == "proxy" else _CONNECTION
    options = str((request.get("options") or {}).get("kind", ""))
    if operation == "UPDATE" and options in _OPTIONS:
        return (_OPTIONS[options],)
    return _VERBS[operation]


def response(uid: str, decision: PolicyDecision) -> bytes:
    """
    Return the response to a review.

    :param decision: if the request is permitted and the decision has a reason, the
        policy only warns.
    """
    reason = decision.reason[:MAX_REASON]
    found: dict[str, Any] = {"uid": uid, "allowed": decision.allowed}
    if decision.rule:
        # Part of the event in the API server's own audit log.
        found["auditAnnotations"] = {"rule": decision.rule}
    if not decision.allowed:
        message = f"the policy of the cluster's owner: {reason}"
        found["status"] = {"code": 403, "reason": "Forbidden", "message": message}
    elif reason:
        found["warnings"] = [
            f"the policy of the cluster's owner would deny it: {reason}"[:MAX_REASON]
        ]
    kinds = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**kinds, "response": found}).encode()
