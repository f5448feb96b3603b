"""The rules of a policy, compiled, and their decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from agentk.policy.document import (
    Expiry,
    IdentityClaims,
    NamePattern,
    Patterns,
    PolicyFile,
    PolicyRule,
    is_open,
)
from agentk.policy.questions import Question
from tunnel.kubernetes import Purpose
from tunnel.toolkit.recent import Recent

__all__ = ["Engine", "PolicyDecision", "Reviewed"]

#: Maximum number of kinds of requests whose rules are remembered.  Clients choose
#: resources, namespaces and users, so the tables must not grow with them.
MAX_KINDS: Final = 1024

_READING: Final = frozenset({"get", "list", "watch"})
#: Subresources that can be read without effects.
_READABLE: Final = frozenset({"", "log", "status", "scale"})

#: Maximum number of kinds whose rules are remembered for one user in one namespace.
MAX_PLACES: Final = 4096

_Kind = tuple[str, str, str, str, str, str]


@attrs.frozen
class PolicyDecision:
    """
    A decision.

    :ivar rule: the name of the rule that decided; empty for the default.
    :ivar reason: why the request is denied, for its user; empty if it is permitted.
    """

    allowed: bool
    rule: str = ""
    reason: str = ""


@attrs.frozen
class Reviewed:
    """
    A rule that a decision considered.

    :ivar effect: ``allow`` or ``deny``.
    :ivar mismatch: the first key that does not match; empty if all match.
    """

    rule: str
    effect: str
    mismatch: str


class _Rule:
    """
    A rule, with its patterns as tables.

    :ivar open: whether its window is open.
    """

    __slots__ = (
        "_always",
        "_argv0",
        "_every_verb",
        "_except",
        "_except_namespaces",
        "_except_verbs",
        "_groups",
        "_modules",
        "_names",
        "_namespaces",
        "_paths",
        "_ports",
        "_resources",
        "_users",
        "_verbs",
        "denies",
        "name",
        "open",
        "window",
    )

    def __init__(self, rule: PolicyRule) -> None:
        self.name = rule.name
        self.denies = rule.denies
        self.window = rule.window
        self.open = True
        self._verbs = frozenset(rule.verbs)
        self._every_verb = "*" in self._verbs
        self._except_verbs = frozenset(rule.except_verbs)
        self._resources = rule.resources
        self._except = rule.except_resources
        self._paths = _patterns(rule.paths)
        self._namespaces = _patterns(rule.namespaces)
        self._except_namespaces = _patterns(rule.except_namespaces)
        self._modules = frozenset(rule.modules)
        self._names = _patterns(rule.names)
        self._users = _patterns(rule.users)
        self._groups = _patterns(rule.groups)
        self._argv0 = _patterns(rule.argv0)
        self._ports = frozenset(rule.ports)
        # Whether nothing depends on more than kind, namespace and user.
        self._always = not (self.window or self._names or self._argv0 or self._ports)

    def kind_mismatch(self, question: Question) -> str:
        """Return the first key that does not match the kind of a request."""
        verb = question.verb
        if not (self._every_verb or verb in self._verbs):
            return "deny" if self.denies else "allow"
        if verb in self._except_verbs or "*" in self._except_verbs:
            return "except_verbs"
        if self._modules and question.origin.module not in self._modules:
            return "modules"
        if not question.resource:
            if self._paths is None:
                return "resources"
            return "" if self._paths.match(question.path) else "paths"
        if self._paths is not None:
            return "paths"
        kind = question.group, question.resource, question.subresource
        if self.denies:
            if not any(one.matches_widely(*kind) for one in self._resources):
                return "resources"
            if any(one.matches_narrowly(*kind) for one in self._except):
                return "except"
        else:
            if not any(one.matches_narrowly(*kind) for one in self._resources):
                return "resources"
            if any(one.matches_widely(*kind) for one in self._except):
                return "except"
        return ""

    def place_mismatch(self, question: Question) -> str:
        """Return the first key that does not match the namespace and the user."""
        namespace, covers = question.namespace, question.covers_namespaces
        wanted, unwanted = self._namespaces, self._except_namespaces
        if wanted is not None and not (
            (self.denies and covers) or (namespace and wanted.match(namespace))
        ):
            return "namespaces"
        if unwanted is not None and (
            (not self.denies and covers) or (namespace and unwanted.match(namespace))
        ):
            return "except_namespaces"
        identity = question.identity
        if self._users is not None:
            if identity.user is None or not self._users.match(identity.user):
                return "users"
        if self._groups is not None:
            if not any(map(self._groups.match_group, identity.groups)):
                return "groups"
        return ""

    def object_mismatch(self, question: Question) -> str:
        """Return the first other key that does not match."""
        if self._always:
            return ""
        if not self.open:
            return "window"
        if self._names is not None:
            name = question.name
            # A request that does not name its object may concern any of them.
            if not (self._names.match(name) if name else self.denies):
                # A proxy's name may have a scheme and a port: https:web:443.
                of_proxy = self.denies and question.subresource == "proxy"
                if not (of_proxy and any(map(self._names.match, name.split(":")))):
                    return "names"
        if self._argv0 is not None and not self._runs(question.argv0):
            return "argv0"
        if self._ports and question.port not in self._ports:
            return "ports"
        return ""

    def _runs(self, argv0: str) -> bool:
        assert self._argv0 is not None
        if self._argv0.match(argv0):
            return bool(argv0) or self.denies
        if not self.denies:
            return False
        return not argv0 or self._argv0.match(argv0.rpartition("/")[2])


def _patterns(globs: tuple[NamePattern, ...]) -> Patterns | None:
    return Patterns(globs) if globs else None


class Engine:
    """
    The decisions of one policy.

    :param policy: the policy.
    :ivar timed: whether decisions depend on the time.
    :ivar modules: the modules that rules name.
    """

    def __init__(self, policy: PolicyFile) -> None:
        self.policy = policy
        self.modules = frozenset(one for rule in policy.rules for one in rule.modules)
        rules = map(_Rule, policy.rules)
        # Deny rules come first, because they decide.
        self._rules = sorted(rules, key=lambda one: not one.denies)
        self._kinds: Recent[_Kind, tuple[_Rule, ...]] = Recent(MAX_KINDS)
        self._places: Recent[object, tuple[_Rule, ...]] = Recent(MAX_PLACES)
        self._claims = _Claims(policy.identities) if policy.identities else None
        begin, end = policy.not_before, policy.expires
        self._begin = begin.timestamp() if begin else float("-inf")
        self._end = end.timestamp() if end else float("inf")
        self.timed = bool(begin or end) or any(one.window for one in policy.rules)
        self._is_early = self.is_expired = False

    def tick(self, now: float) -> bool:
        """
        Adapt to the time, and return whether decisions may differ from before.

        :param now: seconds since 1970.
        """
        changed = (self._is_early, self.is_expired) != (
            now < self._begin,
            now >= self._end,
        )
        self._is_early, self.is_expired = now < self._begin, now >= self._end
        for rule in self._rules:
            if rule.window is not None:
                opened = is_open(rule.window, now)
                changed = changed or opened != rule.open
                rule.open = opened
        return changed

    def decide(self, question: Question) -> PolicyDecision:
        """Return whether the policy permits a request."""
        if self._is_early:
            return PolicyDecision(False, "", "the policy is not valid yet")
        if self.is_expired and not (
            self.policy.on_expiry is Expiry.READ_ONLY
            and (question.discovers or _only_reads(question))
        ):
            return PolicyDecision(False, "", "the policy has expired")
        if self._claims is not None:
            why = self._claims.why_refused(question)
            if why:
                return PolicyDecision(False, "identities", why)
        if question.discovers and self.policy.discovery:
            return PolicyDecision(True, "discovery")
        for rule in self._matching(question):
            if not rule.object_mismatch(question):
                if rule.denies:
                    why = f"the rule {rule.name!r} denies it"
                    return PolicyDecision(False, rule.name, why)
                return PolicyDecision(True, rule.name)
        return PolicyDecision(False, "", "no rule permits it")

    def decide_all(self, questions: Iterable[Question]) -> PolicyDecision:
        """Return the first denial of *questions*, or the decision on the first."""
        decisions = [self.decide(one) for one in questions]
        return next((one for one in decisions if not one.allowed), decisions[0])

    def _matching(self, question: Question) -> tuple[_Rule, ...]:
        """Return the rules for the kind, namespace and user: deny rules first."""
        kind = (
            question.verb,
            question.group,
            question.resource,
            question.subresource,
            "" if question.resource else question.path,
            question.origin.module,
        )
        identity = question.identity
        place = (kind, question.namespace, identity.user, identity.groups)
        found = self._places.get(place)
        if found is None:
            rules = self._kinds.get(kind)
            if rules is None:
                rules = self._kinds[kind] = tuple(
                    one for one in self._rules if not one.kind_mismatch(question)
                )
            found = self._places[place] = tuple(
                one for one in rules if not one.place_mismatch(question)
            )
        return found

    def review(self, question: Question) -> Iterator[Reviewed]:
        """Yield every rule, deny rules first, and why it does not match."""
        for rule in self._rules:
            mismatch = (
                rule.kind_mismatch(question)
                or rule.place_mismatch(question)
                or rule.object_mismatch(question)
            )
            yield Reviewed(rule.name, "deny" if rule.denies else "allow", mismatch)


def _only_reads(question: Question) -> bool:
    return (
        bool(question.resource)
        and question.verb in _READING
        and question.subresource in _READABLE
        and (not question.upgrade or question.verb == "watch")
    )


class _Claims:
    """The identities that kas may claim."""

    def __init__(self, identities: IdentityClaims) -> None:
        self._agent = identities.agent
        self._users = Patterns(identities.users)
        self._groups = Patterns(identities.groups)
        self._extra = Patterns(identities.extra)
        self._never = Patterns(identities.never)

    def why_refused(self, question: Question) -> str:
        """Return why kas may not claim an identity; empty if it may."""
        identity = question.identity
        user = identity.user
        if user is None:
            if question.origin.purpose is Purpose.CALLER and not self._agent:
                return "callers may not act with agentk's own permissions"
            return ""
        if self._never.match(user):
            return f"kas may never claim {user!r}"
        for one in identity.groups:
            if self._never.match_group(one):
                return f"kas may never claim {one!r}"
        if not self._users.match(user):
            return f"kas may not claim the user {user!r}"
        for one in identity.named:
            if not self._groups.match(one):
                return f"kas may not claim the group {one!r}"
        for one in identity.extra:
            if not self._extra.match(one):
                return f"kas may not claim the extra {one!r}"
        return ""
