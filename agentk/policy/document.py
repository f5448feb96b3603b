"""The policy file: its schema, patterns and time windows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal
from zoneinfo import ZoneInfo

import attrs

from tunnel.config import Invalid, Text, field

__all__ = [
    "AUTHENTICATED",
    "MAX_FILE",
    "UNAUTHENTICATED",
    "DayOfWeek",
    "Expiry",
    "IdentityClaims",
    "NamePattern",
    "Patterns",
    "PolicyFile",
    "PolicyRule",
    "ResourcePattern",
    "TimeWindow",
    "is_open",
]

#: Maximum bytes of a policy file: the limit of a ConfigMap is 1 MiB, and a policy with
#: more than this is not read by its owner either.
MAX_FILE: Final = 256 * 1024

#: Maximum number of rules, and of entries of one list of a rule: both limit the time of
#: one decision.
MAX_RULES: Final = 1000
MAX_ENTRIES: Final = 200

#: Maximum characters of a pattern; names of Kubernetes have at most 253.
MAX_PATTERN: Final = 253

#: Groups that the API server gives users with and without credentials.
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"

_MODULE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_RESOURCE: Final = re.compile(
    r"(?P<resource>\*|[a-z0-9][-a-z0-9]*)"
    r"(?:\.(?P<group>\*|[a-z0-9][-a-z0-9.]*))?"
    r"(?:/(?P<subresource>\*|[a-z0-9][-a-z0-9]*))?"
)
_CLOCK: Final = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])")


@attrs.frozen
class NamePattern:
    """
    A pattern for a whole text, with at most one ``*``.

    :ivar is_literal: whether the pattern has no ``*``.
    """

    text: str
    is_literal: bool = attrs.field(init=False)
    _prefix: str = attrs.field(init=False)
    _suffix: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        prefix, star, suffix = self.text.partition("*")
        if not self.text or len(self.text) > MAX_PATTERN:
            raise ValueError(f"write 1 to {MAX_PATTERN} characters")
        if "*" in suffix:
            raise ValueError("at most one * is permitted")
        object.__setattr__(self, "is_literal", not star)
        object.__setattr__(self, "_prefix", prefix)
        object.__setattr__(self, "_suffix", suffix)

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole *text*."""
        if self.is_literal:
            return text == self.text
        return (
            len(text) >= len(self._prefix) + len(self._suffix)
            and text.startswith(self._prefix)
            and text.endswith(self._suffix)
        )


class Patterns:
    """Patterns of which one has to match."""

    __slots__ = ("_globs", "_literals", "matches_all")

    def __init__(self, globs: Iterable[NamePattern]) -> None:
        found = tuple(globs)
        self._literals = frozenset(one.text for one in found if one.is_literal)
        self._globs = tuple(one for one in found if not one.is_literal)
        #: Whether one of the patterns is ``*``.
        self.matches_all = any(one.text == "*" for one in found)

    def match(self, text: str) -> bool:
        """Return whether a pattern matches *text*."""
        if self.matches_all or text in self._literals:
            return True
        return any(one.matches(text) for one in self._globs)

    def match_group(self, group: str) -> bool:
        """
        Return whether a pattern matches a group.

        Nearly every user is in ``system:authenticated``, so only ``*`` and the whole
        name match it; ``system:*`` would otherwise match everyone.
        """
        if group in (AUTHENTICATED, UNAUTHENTICATED):
            return self.matches_all or group in self._literals
        return self.match(group)


@attrs.frozen
class ResourcePattern:
    """
    A pattern for resources: ``pods``, ``deployments.apps``, ``pods/exec``, ``*/*``.

    :ivar group: None if the pattern names no group.
    :ivar subresource: empty if the pattern names no subresource.
    """

    text: str
    resource: str
    group: str | None
    subresource: str

    @classmethod
    def parse(cls, text: str) -> ResourcePattern:
        """
        Parse ``resource.group/subresource``.

        :raises ValueError: the text has another format.
        """
        found = _RESOURCE.fullmatch(text) if len(text) <= MAX_PATTERN else None
        if found is None:
            raise ValueError(
                "write the plural in lower case, with '.group' and '/subresource' if "
                "needed, or * for a whole part"
            )
        plural = _PLURALS.get(found["resource"])
        if plural is not None and found["group"] in (None, "", "apps", "batch"):
            # Such a rule would never match.
            raise ValueError(f"write {plural!r}, the name in the paths of the API")
        return cls(text, found["resource"], found["group"], found["subresource"] or "")

    def matches_narrowly(self, group: str, resource: str, subresource: str) -> bool:
        """
        Return whether the pattern matches in a list that permits something: without a
        group, only the core group; without a subresource, only the resource itself.
        """
        every = self.resource == "*"
        if not every and self.resource != resource:
            return False
        if self.group is None:
            if not every and group:
                return False
        elif self.group not in ("*", group):
            return False
        if self.subresource == "*":
            return every or bool(subresource)
        return self.subresource == subresource

    def matches_widely(self, group: str, resource: str, subresource: str) -> bool:
        """
        Return whether the pattern matches in a list that forbids something: without a
        group, every group; without a subresource, all of them.
        """
        every = self.resource == "*"
        if not every and self.resource != resource:
            return False
        if self.group not in (None, "*", group):
            return False
        if self.subresource == "*":
            return every or bool(subresource)
        return self.subresource in ("", subresource)


#: Verbs of requests for objects, of connections to Services, and of requests for other
#: paths, which are HTTP methods.
VERBS: Final = (
    *("get", "list", "watch", "create", "update", "patch", "delete"),
    *("deletecollection", "connect", "post", "put", "head", "options"),
)

#: Names that kubectl accepts and paths do not have.
_PLURALS: Final = {
    "cj": "cronjobs",
    "cm": "configmaps",
    "configmap": "configmaps",
    "cronjob": "cronjobs",
    "daemonset": "daemonsets",
    "deploy": "deployments",
    "deployment": "deployments",
    "ds": "daemonsets",
    "event": "events",
    "ing": "ingresses",
    "ingress": "ingresses",
    "job": "jobs",
    "namespace": "namespaces",
    "node": "nodes",
    "ns": "namespaces",
    "po": "pods",
    "pod": "pods",
    "pvc": "persistentvolumeclaims",
    "replicaset": "replicasets",
    "rs": "replicasets",
    "sa": "serviceaccounts",
    "secret": "secrets",
    "service": "services",
    "serviceaccount": "serviceaccounts",
    "statefulset": "statefulsets",
    "sts": "statefulsets",
    "svc": "services",
}


def parse_time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("add the zone, such as Z or +01:00")
    return found.astimezone(UTC)


def _zone(text: str) -> tzinfo:
    if text in ("UTC", "Etc/UTC"):
        return UTC
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        # The data may be missing, too.
        raise ValueError(
            "this zone is unknown here; write UTC, or install the package tzdata"
        ) from None


def _minute(text: str) -> int:
    found = _CLOCK.fullmatch(text)
    minute = int(found[1]) * 60 + int(found[2]) if found is not None else -1
    if not 0 <= minute <= 24 * 60:
        raise ValueError
    return minute


def _verb(text: str) -> str:
    if text not in VERBS and text != "*":
        # Such a rule would never match.
        raise ValueError(f"the verbs are {', '.join(VERBS)}, and *")
    return text


def _rule_name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError("use lower-case letters, digits, '-' and '.'")
    return text


def _module(text: str) -> str:
    if _MODULE.fullmatch(text) is None:
        raise ValueError
    return text


_Module = Annotated[str, Text(_module, "a module such as gitops")]
_Pattern = Annotated[NamePattern, Text(NamePattern, "a text with at most one *")]
_Resource = Annotated[
    ResourcePattern, Text(ResourcePattern.parse, "a resource such as pods/exec")
]
_Verb = Annotated[str, Text(_verb, "a verb such as get, or *")]
_RuleName = Annotated[str, Text(_rule_name, "a name of at most 63 characters")]
_Time = Annotated[datetime, Text(parse_time, "a time such as 2026-11-01T00:00:00Z")]
_Zone = Annotated[tzinfo, Text(_zone, "a zone such as Europe/Berlin")]
_Minute = Annotated[int, Text(_minute, "a time of day such as 08:30, or 24:00")]


class DayOfWeek(Enum):
    """Day of the week, in the order of `datetime.weekday`."""

    MONDAY = "Mon"
    TUESDAY = "Tue"
    WEDNESDAY = "Wed"
    THURSDAY = "Thu"
    FRIDAY = "Fri"
    SATURDAY = "Sat"
    SUNDAY = "Sun"


_DAYS: Final = tuple(DayOfWeek)


@attrs.frozen(kw_only=True)
class TimeWindow:
    """
    ``window`` of a rule: wall-clock times at which the rule applies.

    A window whose end is not after its begin ends on the next day.
    """

    days: tuple[DayOfWeek, ...] = field(
        default=_DAYS, doc="days on which the window begins; default: all"
    )
    begin: _Minute = field(key="from", default=0, doc="time of day at the begin")
    end: _Minute = field(key="to", default=24 * 60, doc="time of day at the end")
    zone: _Zone = field(doc="the zone of these times, such as Europe/Berlin")

    def __attrs_post_init__(self) -> None:
        if self.begin == self.end or self.begin == 24 * 60:
            raise Invalid("the window is empty", "from")


def is_open(window: TimeWindow, now: float) -> bool:
    """
    Return whether a window is open.

    :param now: seconds since 1970.
    """
    local = datetime.fromtimestamp(now, window.zone)
    minute = local.hour * 60 + local.minute
    today = _DAYS[local.weekday()] in window.days
    if window.begin < window.end:
        return today and window.begin <= minute < window.end
    yesterday = _DAYS[(local - timedelta(days=1)).weekday()] in window.days
    return (today and minute >= window.begin) or (yesterday and minute < window.end)


def _few(instance: object, attribute: Any, value: tuple[object, ...] | None) -> None:
    if value is not None and len(value) > MAX_ENTRIES:
        raise ValueError(f"has more than {MAX_ENTRIES} entries; write patterns")


def _ports(instance: object, attribute: Any, value: tuple[int, ...]) -> None:
    if any(not 0 < one < 65536 for one in value):
        raise ValueError("ports are numbers from 1 to 65535")
    _few(instance, attribute, value)


@attrs.frozen(kw_only=True)
class PolicyRule:
    """
    One of ``rules``: it matches a request if each of its keys does.

    A missing key matches everything; a key without a value is refused.  Deny rules
    match widely, and allow rules narrowly: see `ResourcePattern`.
    """

    name: _RuleName = field(doc="name of the rule, which denials show")
    allow: tuple[_Verb, ...] = field(
        default=(), validator=_few, doc="verbs to permit; * for all"
    )
    deny: tuple[_Verb, ...] = field(
        default=(), validator=_few, doc="verbs to forbid, whatever other rules say"
    )
    except_verbs: tuple[_Verb, ...] = field(
        default=(), validator=_few, doc="verbs that the rule does not concern"
    )
    resources: tuple[_Resource, ...] = field(
        default=(), validator=_few, doc="resources, such as pods, pods/exec, *.apps"
    )
    except_resources: tuple[_Resource, ...] = field(
        key="except",
        default=(),
        validator=_few,
        doc="resources that the rule does not concern",
    )
    paths: tuple[_Pattern, ...] = field(
        default=(),
        validator=_few,
        doc="paths outside of resources, such as /metrics; instead of resources",
    )
    namespaces: tuple[_Pattern, ...] = field(
        default=(), validator=_few, doc="namespaces; default: all, and none"
    )
    except_namespaces: tuple[_Pattern, ...] = field(
        default=(), validator=_few, doc="namespaces that the rule does not concern"
    )
    names: tuple[_Pattern, ...] = field(
        default=(), validator=_few, doc="names of objects"
    )
    modules: tuple[_Module, ...] = field(
        default=(),
        validator=_few,
        doc="modules of agentk: kubernetes_api for kubectl, gitops, …; default: all",
    )
    users: tuple[_Pattern, ...] = field(
        default=(), validator=_few, doc="impersonated users"
    )
    groups: tuple[_Pattern, ...] = field(
        default=(), validator=_few, doc="groups of impersonated users; one suffices"
    )
    argv0: tuple[_Pattern, ...] = field(
        default=(), validator=_few, doc="programs that pods/exec runs"
    )
    ports: tuple[int, ...] = field(
        default=(), validator=_ports, doc="ports of Services, for the verb connect"
    )
    window: TimeWindow | None = field(
        default=None, doc="when the rule applies; default: always"
    )

    @property
    def denies(self) -> bool:
        """Whether it is a deny rule."""
        return bool(self.deny)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs of the rule."""
        return self.deny or self.allow

    def __attrs_post_init__(self) -> None:
        if bool(self.allow) == bool(self.deny):
            raise Invalid("write either allow or deny, with verbs", "name")
        if bool(self.resources) == bool(self.paths):
            raise Invalid("write either resources or paths", "name")
        if self.paths and (self.namespaces or self.names or self.except_resources):
            raise Invalid("paths have no namespaces, names or resources", "paths")
        if self.argv0 and any(
            (one.resource, one.group, one.subresource) != ("pods", None, "exec")
            for one in self.resources
        ):
            raise Invalid("only pods/exec runs programs; name no others", "argv0")
        if self.ports and (
            set(self.verbs) != {"connect"}
            or any(
                (one.resource, one.subresource) != ("services", "")
                for one in self.resources
            )
        ):
            raise Invalid("only connect to services has ports", "ports")


@attrs.frozen(kw_only=True)
class IdentityClaims:
    """``identities``: users and groups that kas may claim."""

    agent: bool = field(
        default=False, doc="whether callers may act with agentk's own permissions"
    )
    users: tuple[_Pattern, ...] = field(
        default=(), validator=_few, doc="users that kas may impersonate; default: none"
    )
    groups: tuple[_Pattern, ...] = field(
        default=(), validator=_few, doc="groups of these users; default: none"
    )
    extra: tuple[_Pattern, ...] = field(
        default=(NamePattern("*"),),
        validator=_few,
        doc="keys of Impersonate-Extra; default: all",
    )
    never: tuple[_Pattern, ...] = field(
        default=(), validator=_few, doc="users and groups that kas may never claim"
    )


class Expiry(Enum):
    """What an expired policy permits."""

    DENY = "deny"
    #: Whatever its rules permit, if it only reads.
    READ_ONLY = "keep-read-only"


@attrs.frozen(kw_only=True)
class PolicyFile:
    """Schema of a policy file."""

    #: A key that remains when its last entry is removed would make a rule unlimited.
    REFUSE_EMPTY: ClassVar[bool] = True

    kind: Literal["AgentPolicy"] = field(doc="AgentPolicy")
    serial: int = field(default=0, doc="number of this version; it only rises")
    clusters: tuple[str, ...] = field(
        default=(),
        validator=_few,
        doc="uids of the namespace kube-system of the clusters that it is for",
    )
    not_before: _Time | None = field(default=None, doc="time at which it begins")
    expires: _Time | None = field(default=None, doc="time at which it ends")
    on_expiry: Expiry = field(
        default=Expiry.DENY, doc="what remains permitted after that"
    )
    mode: Literal["enforce", "warn"] = field(
        default="enforce", doc="whether denied requests are refused, or only logged"
    )
    discovery: bool = field(
        default=True, doc="permit discovery, version, health and self-reviews"
    )
    identities: IdentityClaims | None = field(
        default=None, doc="whom kas may claim to act for; default: anyone"
    )
    rules: tuple[PolicyRule, ...] = field(default=(), doc="the rules, in any order")

    def __attrs_post_init__(self) -> None:
        if self.serial < 0:
            raise Invalid("cannot be negative", "serial")
        if len(self.rules) > MAX_RULES:
            raise Invalid(f"has more than {MAX_RULES} rules", "rules")
        names = [one.name for one in self.rules]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise Invalid(f"two rules have the name {name!r}", "rules")
        if self.not_before and self.expires and self.not_before >= self.expires:
            raise Invalid("is not after not_before", "expires")
