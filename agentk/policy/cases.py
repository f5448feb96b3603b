"""Described requests, for ``agentk-policy test`` and ``explain``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import attrs

from agentk.policy.document import VERBS, ResourcePattern, parse_time
from agentk.policy.questions import AGENTK, Identity, Question, with_creation
from tunnel.config import Invalid, Text, field
from tunnel.kubernetes import Purpose, RequestOrigin, Right

__all__ = ["CaseFile", "PolicyCase", "questions_for"]

#: Maximum number of cases of a file.
MAX_CASES = 10_000

_Moment = Annotated[
    datetime, Text(parse_time, "a time such as 2026-11-01T08:00:00+01:00")
]


def _is_verb(instance: object, attribute: object, value: str) -> None:
    if value not in VERBS:
        raise ValueError(f"the verbs are {', '.join(VERBS)}")


def _is_resource(instance: object, attribute: object, value: str) -> None:
    if value:
        ResourcePattern.parse(value)


@attrs.frozen(kw_only=True)
class PolicyCase:
    """A request, and the expected decision."""

    verb: str = field(
        doc="get, list, create, …; connect for a Service",
        validator=_is_verb,
    )
    resource: str = field(
        default="", doc="resource.group/subresource", validator=_is_resource
    )
    path: str = field(default="", doc="a path outside of resources")
    namespace: str = field(default="", doc="empty for all, or none")
    name: str = field(default="", doc="the object; empty if the request names none")
    user: str = field(key="as", default="", doc="empty for agentk's own permissions")
    groups: tuple[str, ...] = field(default=(), doc="the groups of the user")
    module: str = field(default="kubernetes_api", doc="the module of agentk")
    argv0: str = field(default="", doc="the program that pods/exec runs")
    port: int = field(default=0, doc="the port of a Service")
    at: _Moment | None = field(default=None, doc="time of the request; default: now")
    expect: Literal["allow", "deny"] | None = field(
        default=None, doc="the expected decision"
    )
    by: str = field(default="", doc="the rule that decides; default: any")

    def __attrs_post_init__(self) -> None:
        if bool(self.resource) == bool(self.path):
            raise Invalid("write either resource or path", "resource")


@attrs.frozen(kw_only=True)
class CaseFile:
    """Schema of a file with cases."""

    cases: tuple[PolicyCase, ...] = field(doc="requests and decisions")

    def __attrs_post_init__(self) -> None:
        if len(self.cases) > MAX_CASES:
            raise Invalid(f"has more than {MAX_CASES} cases", "cases")
        for number, one in enumerate(self.cases, 1):
            if one.expect is None:
                raise Invalid(f"case {number} has no 'expect: allow' or deny", "cases")


def questions_for(case: PolicyCase) -> tuple[Question, ...]:
    """Return the questions that a described request asks the policy."""
    identity = Identity(case.user, case.groups) if case.user else AGENTK
    of_caller = case.module == "kubernetes_api"
    origin = RequestOrigin(case.module, Purpose.CALLER if of_caller else Purpose.MODULE)
    if case.path:
        return (Question.to_path(origin, identity, case.verb, case.path),)
    kind, _, subresource = case.resource.partition("/")
    resource, _, group = kind.partition(".")
    right = Right(case.verb, resource, group, subresource, case.namespace, case.name)
    found = Question.about(origin, identity, right)
    found = attrs.evolve(found, argv0=case.argv0, port=case.port)
    return tuple(with_creation(found))
