"""The decisions of a policy, beside those of a second interpreter."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentk.policy.document import (
    IdentityClaims,
    PolicyFile,
    PolicyRule,
    TimeWindow,
)
from agentk.policy.engine import MAX_KINDS, MAX_PLACES, Engine
from agentk.policy.questions import AGENTK, Identity, Question
from tests.agentk.policy.naive import DAYS, permits
from tunnel.config import read
from tunnel.config.schema import field_types
from tunnel.errors import ConfigurationError
from tunnel.kubernetes import Purpose, RequestOrigin, Right

NOW = datetime(2026, 11, 27, 17, 30, tzinfo=UTC)

VERBS = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
]
RESOURCES = [
    ("", "pods"),
    ("", "secrets"),
    ("apps", "deployments"),
    ("", "nodes"),
    ("events.k8s.io", "events"),
    ("", "events"),
]
SUBRESOURCES = ["", "exec", "log", "scale", "status"]
NAMESPACES = ["", "prod", "prod-eu", "nonprod", "app-a", "app-b", "kube-system"]
NAMES = ["", "web", "web-0", "db"]
USERS = [
    *("alice@example.org", "bob", "system:admin", "system:anonymous"),
    "system:serviceaccount:prod:web",
]
GROUPS = ["dev", "ops", "system:masters"]


def policy_of(text: str) -> PolicyFile:
    """Read a policy without its first line."""
    return read(f"kind: AgentPolicy\n{text}", "policy.yaml", PolicyFile)


def engine_of(text: str, now: datetime = NOW) -> Engine:
    """Compile a policy for a time."""
    engine = Engine(policy_of(text))
    engine.tick(now.timestamp())
    return engine


def few(chance: Random, values: list[str], least: int = 1) -> list[str]:
    return chance.sample(values, chance.randint(least, min(3, len(values))))


OPTIONAL = {
    "except_verbs": ["get", "list", "delete", "watch"],
    "except": ["pods", "secrets", "*.apps", "pods/*", "deployments", "*/scale"],
    "namespaces": ["prod", "prod*", "app-*", "*", "*prod", "kube-system"],
    "except_namespaces": ["prod", "kube-*", "app-*"],
    "names": ["web", "web-*", "*b", "*"],
    "modules": ["kubernetes_api", "gitops"],
    "users": ["*@example.org", "bob", "*"],
    "groups": [
        *("dev", "ops", "system:*", "*", "system:serviceaccounts"),
        *("system:serviceaccounts:prod", "system:authenticated"),
    ],
}
PATTERNS = [
    "*", "*/*", "pods", "pods/exec", "pods/*", "pods/log", "secrets", "deployments",
    "deployments.apps", "deployments.apps/scale", "*.apps", "*.apps/*", "*/scale",
    "nodes", "events", "events.events.k8s.io", "events.*", "*.*/status",
]  # fmt: skip


def a_rule(chance: Random, number: int) -> dict[str, Any]:
    """Return a rule with some of the keys."""
    rule: dict[str, Any] = {"name": f"rule-{number}"}
    rule[chance.choice(["allow", "allow", "deny"])] = few(chance, [*VERBS, "*"])
    rule["resources"] = few(chance, PATTERNS)
    for key, values in OPTIONAL.items():
        if chance.random() < 0.2:
            rule[key] = few(chance, values)
    if chance.random() < 0.2:
        rule["window"] = {
            "zone": chance.choice(["UTC", "Europe/Berlin", "America/New_York"])
        }
        if chance.random() < 0.5:
            rule["window"]["days"] = few(chance, DAYS)
        if chance.random() < 0.8:
            rule["window"]["from"] = chance.choice(["08:00", "16:00", "23:30"])
            rule["window"]["to"] = chance.choice(["06:15", "18:30", "24:00"])
    if chance.random() < 0.2:
        rule["resources"] = ["pods/exec"]
        rule["argv0"] = few(chance, ["sh", "bash", "/bin/*"])
    return rule


def a_policy(chance: Random) -> dict[str, Any]:
    """Return a policy as plain data."""
    rules = [a_rule(chance, number) for number in range(chance.randint(0, 8))]
    found: dict[str, Any] = {"kind": "AgentPolicy"}
    if rules:
        found["rules"] = rules
    if chance.random() < 0.25:
        found["identities"] = {
            "agent": chance.random() < 0.5,
            "users": few(chance, ["*@example.org", "bob", "*"], 0),
            "groups": few(chance, ["dev", "*"], 0),
            "never": few(chance, ["system:*", "bob", "system:authenticated"], 0),
        }
        for key in "users", "groups", "never":
            if not found["identities"][key]:
                del found["identities"][key]
    return found


def a_request(chance: Random) -> dict[str, Any]:
    """Return a request as plain data."""
    group, resource = chance.choice(RESOURCES)
    verb = chance.choice(VERBS)
    namespace = "" if resource == "nodes" else chance.choice(NAMESPACES)
    collection = verb in ("list", "watch", "deletecollection")
    user = chance.choice([None, *USERS])
    module = chance.choice(["kubernetes_api", "gitops"])
    return {
        "group": group,
        "resource": resource,
        "subresource": chance.choice(SUBRESOURCES),
        "verb": verb,
        "namespace": namespace,
        "everywhere": collection and namespace == "" and resource != "nodes",
        "name": chance.choice(NAMES),
        "user": user,
        "groups": [] if user is None else few(chance, GROUPS, 0),
        "module": module,
        "caller": module == "kubernetes_api",
        "argv0": chance.choice(["", "sh", "/bin/bash", "python"]),
    }


def question(request: dict[str, Any]) -> Question:
    user, groups = request["user"], tuple(request["groups"])
    purpose = Purpose.CALLER if request["caller"] else Purpose.MODULE
    right = Right(
        request["verb"],
        request["resource"],
        request["group"],
        request["subresource"],
        request["namespace"],
        request["name"],
    )
    found = Question.about(
        RequestOrigin(request["module"], purpose),
        AGENTK if user is None else Identity(user, groups),
        right,
    )
    found.argv0 = request["argv0"]
    return found


@settings(max_examples=2000, deadline=None)
@given(st.integers(0, 2**64))
def test_two_interpreters(seed: int) -> None:
    """Both decide alike, and the explanation agrees."""
    chance = Random(seed)
    policy, request = a_policy(chance), a_request(chance)
    now = datetime(2026, 3, 28, tzinfo=UTC) + timedelta(
        minutes=chance.randrange(320000)
    )
    engine = Engine(read(json.dumps(policy), "policy.yaml", PolicyFile))
    engine.tick(now.timestamp())
    asked = question(request)
    decision = engine.decide(asked)
    assert decision.allowed == permits(policy, request, now)
    # A second decision uses the remembered rules.
    assert engine.decide(asked) == decision
    if decision.rule not in ("", "identities"):
        first = next(one for one in engine.review(asked) if not one.mismatch)
        assert first.rule == decision.rule


KUBECTL = RequestOrigin("kubernetes_api", Purpose.CALLER)
ALICE = Identity("alice@example.org", ("dev",))


def decides(
    text: str,
    right: str,
    *,
    identity: Identity = ALICE,
    now: datetime = NOW,
    **more: Any,
) -> tuple[bool, str]:
    """
    Return the decision on ``verb resource.group/subresource namespace name``.

    A dash is an empty text.
    """
    verb, kind, namespace, name = ("" if one == "-" else one for one in right.split())
    whole, _, subresource = kind.partition("/")
    resource, _, group = whole.partition(".")
    wanted = Right(verb, resource, group, subresource, namespace, name)
    origin = more.pop("origin", KUBECTL)
    found = attrs.evolve(Question.about(origin, identity, wanted), **more)
    decision = engine_of(text, now).decide(found)
    return decision.allowed, decision.rule


@pytest.mark.parametrize(
    ("pattern", "kind", "narrow", "wide"),
    [
        ("pods", "pods", True, True),
        ("pods", "pods/exec", False, True),
        ("pods", "pods.metrics.k8s.io", False, True),
        ("pods/exec", "pods", False, False),
        ("pods/exec", "pods/exec", True, True),
        ("pods/exec", "pods/attach", False, False),
        ("pods/*", "pods", False, False),
        ("pods/*", "pods/log", True, True),
        ("*", "pods", True, True),
        ("*", "deployments.apps", True, True),
        ("*", "deployments.apps/scale", False, True),
        ("*/*", "pods", True, True),
        ("*/*", "pods/exec", True, True),
        ("*/scale", "deployments.apps/scale", True, True),
        ("*/scale", "deployments.apps", False, False),
        ("*.apps", "deployments.apps", True, True),
        ("*.apps", "pods", False, False),
        ("deployments", "deployments.apps", False, True),
        ("deployments.apps", "deployments.extensions", False, False),
        ("deployments.*", "deployments.extensions", True, True),
    ],
)
def test_resources(pattern: str, kind: str, narrow: bool, wide: bool) -> None:
    """Allow rules are narrow, deny rules are wide."""
    allow = f'rules: [{{name: a, allow: ["*"], resources: ["{pattern}"]}}]'
    assert decides(allow, f"create {kind} app x")[0] is narrow
    deny = (
        'rules: [{name: all, allow: ["*"], resources: ["*/*"]}, '
        f'{{name: d, deny: ["*"], resources: ["{pattern}"]}}]'
    )
    assert decides(deny, f"create {kind} app x") == (not wide, "d" if wide else "all")


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("prod", "prod", True),
        ("prod", "prod-eu", False),
        ("prod", "nonprod", False),
        ("prod*", "prod-eu", True),
        ("*prod", "nonprod", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a.b", "a-b", False),
        ("a.b", "a.b", True),
        ("[a-z]", "a", False),
        ("*", "x", True),
    ],
)
def test_globs(pattern: str, name: str, matches: bool) -> None:
    """Patterns match whole names, and a dot is a dot."""
    rule = f'{{name: a, allow: [get], resources: [pods], namespaces: ["{pattern}"]}}'
    assert decides(f"rules: [{rule}]", f"get pods {name} x")[0] is matches


ALL = '{name: all, allow: ["*"], resources: ["*/*"]}'


def test_collections() -> None:
    """A list concerns every namespace and name that it does not rule out."""
    text = "rules: [{name: a, allow: [get, list, watch], resources: [pods], %s}]"
    assert not decides(text % "namespaces: [app]", "list pods - -")[0]
    assert decides(text % "namespaces: [app]", "list pods app -")[0]
    assert not decides(text % "names: [web]", "list pods app -")[0]
    assert decides(text % "names: [web]", "watch pods app web")[0]
    assert not decides(text % "except_namespaces: [prod]", "list pods - -")[0]
    assert decides(text % "except_namespaces: [prod]", "list pods app -")[0]
    text = f"rules: [{ALL}, {{name: d, deny: ['*'], resources: [secrets], %s}}]"
    assert not decides(text % "namespaces: [prod]", "list secrets - -")[0]
    assert not decides(text % "names: [db]", "list secrets app -")[0]
    assert not decides(text % "names: [db]", "create secrets app -")[0]
    assert decides(text % "names: [db]", "get secrets app other")[0]
    # Objects without a namespace are in none.
    nodes = f"rules: [{ALL}, {{name: d, deny: ['*'], resources: ['*'], %s}}]"
    assert decides(nodes % "namespaces: [prod]", "list nodes - -")[0]
    assert decides(nodes % "namespaces: [prod]", "get nodes - n")[0]
    assert not decides(nodes % "namespaces: [prod]", "get namespaces prod prod")[0]


def test_names_of_proxies() -> None:
    """A scheme and a port are no way around a name."""
    text = (
        f"rules: [{ALL}, {{name: d, deny: ['*'], resources: [services], names: [db]}}]"
    )
    for name, allowed in (("db:80", False), ("https:db:443", False), ("web:80", True)):
        assert decides(text, f"get services/proxy app {name}")[0] is allowed
    text = "rules: [{name: a, allow: [get], resources: [services/proxy], names: [db]}]"
    assert not decides(text, "get services/proxy app db:80")[0]


def test_exceptions() -> None:
    """An exception of an allow rule is soft; a deny rule is final."""
    text = 'rules: [{name: a, allow: [get], resources: ["*/*"], except: [secrets]}%s]'
    assert not decides(text % "", "get secrets app x")[0]
    assert not decides(text % "", "get secrets/status app x")[0]
    more = ", {name: b, allow: [get], resources: [secrets], groups: [dev]}"
    assert decides(text % more, "get secrets app x") == (True, "b")
    final = more + ", {name: c, deny: [get], resources: [secrets]}"
    assert decides(text % final, "get secrets app x") == (False, "c")


def test_programs() -> None:
    """The program of exec; attach names none."""
    rule = "{name: a, %s: [create], resources: [pods/exec], argv0: [%s]}"
    allow = f"rules: [{rule % ('allow', 'ls, /bin/*')}]"
    deny = f"rules: [{ALL}, {rule % ('deny', 'sh')}]"
    for text, cases in (
        (allow, {"ls": True, "/bin/sh": True, "bash": False, "": False}),
        (deny, {"sh": False, "/bin/sh": False, "": False, "ls": True}),
    ):
        for argv0, allowed in cases.items():
            found = decides(text, "create pods/exec a b", argv0=argv0)
            assert found[0] is allowed, (text, argv0)


def test_services() -> None:
    """Connections of modules to Services."""
    text = (
        "rules: [{name: a, allow: [connect], resources: [services], "
        "modules: [webhooks], namespaces: [flux], names: [receiver], ports: [80]}]"
    )
    webhooks = RequestOrigin("webhooks", Purpose.MODULE)
    for right, port, origin, allowed in (
        ("connect services flux receiver", 80, webhooks, True),
        ("connect services flux receiver", 81, webhooks, False),
        ("connect services flux other", 80, webhooks, False),
        ("connect services flux receiver", 80, KUBECTL, False),
        ("get services flux receiver", 80, webhooks, False),
    ):
        found = decides(text, right, port=port, origin=origin, identity=AGENTK)
        assert found[0] is allowed


SERVICE_ACCOUNT = "system:serviceaccount:prod:web"


@pytest.mark.parametrize(
    ("pattern", "user", "named", "matches"),
    [
        ("system:serviceaccounts", SERVICE_ACCOUNT, (), True),
        ("system:serviceaccounts:prod", SERVICE_ACCOUNT, (), True),
        ("system:serviceaccounts:p*", SERVICE_ACCOUNT, (), True),
        ("system:*", SERVICE_ACCOUNT, (), True),
        ("system:serviceaccounts:app", SERVICE_ACCOUNT, (), False),
        ("system:serviceaccounts", SERVICE_ACCOUNT, ("dev",), False),
        ("system:authenticated", SERVICE_ACCOUNT, (), True),
        ("system:authenticated", "bob", (), True),
        ("system:authenticated", "bob", ("dev",), True),
        ("*", "bob", (), True),
        ("system:*", "bob", (), False),
        ("system:*", "bob", ("system:masters",), True),
        ("system:authenticated", "system:anonymous", (), False),
        ("system:unauthenticated", "system:anonymous", (), True),
    ],
)
def test_added_groups(
    pattern: str, user: str, named: tuple[str, ...], matches: bool
) -> None:
    """Groups that the API server adds count for rules and for ``never``."""
    identity = Identity(user, named)
    allow = (
        f'rules: [{{name: a, allow: ["*"], resources: [pods], groups: ["{pattern}"]}}]'
    )
    deny = (
        f"rules: [{ALL}, {{name: d, deny: ['*'], resources: ['*'], "
        f"groups: ['{pattern}']}}]"
    )
    never = f"identities: {{users: ['*'], groups: ['*'], never: ['{pattern}']}}\n"
    for text, allowed in (
        (allow, matches),
        (deny, not matches),
        (f"{never}rules: [{ALL}]", not matches and pattern != "*"),
    ):
        if "never" in text and user.startswith("system:") and pattern == "system:*":
            allowed = False
        assert decides(text, "get pods a b", identity=identity)[0] is allowed, text


def test_added_groups_need_no_claim() -> None:
    """kas need not claim the groups that the API server adds."""
    text = f"identities: {{users: ['*']}}\nrules: [{ALL}]"
    for named, allowed in ((), True), (("system:authenticated",), False):
        identity = Identity(SERVICE_ACCOUNT, named)
        assert decides(text, "get pods a b", identity=identity)[0] is allowed


@pytest.mark.parametrize(
    ("user", "groups", "allowed"),
    [
        ("alice@example.org", ["dev"], True),
        ("alice@example.org", [], True),
        ("alice@example.org", ["dev", "ops"], False),
        ("alice@example.org.evil", ["dev"], False),
        ("system:admin", [], False),
        ("mallory@example.org", [], False),
        (None, [], False),
    ],
)
def test_claims(user: str | None, groups: list[str], allowed: bool) -> None:
    """The users and groups that kas may claim."""
    text = (
        'identities: {users: ["*@example.org", "system:*"], groups: [dev, "system:*"], '
        f'never: ["system:*", "mallory*"]}}\nrules: [{ALL}]'
    )
    identity = AGENTK if user is None else Identity(user, tuple(groups))
    assert decides(text, "get pods a b", identity=identity)[0] is allowed
    # A module's own work claims nobody.
    gitops = RequestOrigin("gitops", Purpose.MODULE)
    assert decides(text, "get pods a b", identity=AGENTK, origin=gitops)[0]
    agent = text.replace("identities: {", "identities: {agent: true, ")
    assert decides(agent, "get pods a b", identity=AGENTK)[0]


def test_extras() -> None:
    """Keys of extra fields."""
    text = f"identities: {{users: ['*'], extra: ['example.org/*']}}\nrules: [{ALL}]"
    for key, allowed in (("example.org/a", True), ("other", False)):
        identity = Identity("alice", (), (key,))
        assert decides(text, "get pods a b", identity=identity)[0] is allowed


@pytest.mark.parametrize(
    ("moment", "opened"),
    [
        # Friday to Saturday in Berlin, across midnight.
        ("2026-11-27T20:59:59+01:00", False),
        ("2026-11-27T21:00:00+01:00", True),
        ("2026-11-28T02:59:59+01:00", True),
        ("2026-11-28T03:00:00+01:00", False),
        ("2026-11-27T02:00:00+01:00", False),
        # The clock is put back at 03:00 on 2026-10-25, a Sunday, and nothing is open.
        ("2026-10-25T02:30:00+02:00", False),
        # The clock is put forward on 2026-03-29; the window begins on Friday.
        ("2026-03-28T02:59:00+01:00", True),
    ],
)
def test_windows(moment: str, opened: bool) -> None:
    """Wall-clock times of a zone, beginning on a day."""
    text = (
        "rules: [{name: a, allow: [get], resources: [pods], window: {days: [Fri], "
        'from: "21:00", to: "03:00", zone: Europe/Berlin}}]'
    )
    now = datetime.fromisoformat(moment)
    assert decides(text, "get pods a b", now=now)[0] is opened


def test_both_hours_of_a_changed_clock() -> None:
    """In the night with 25 hours, a window of wall-clock times is open twice."""
    text = (
        "rules: [{name: a, allow: [get], resources: [pods], window: {"
        'from: "02:15", to: "02:45", zone: Europe/Berlin}}]'
    )
    opened = [
        minute
        for minute in range(0, 240, 15)
        if decides(
            text,
            "get pods a b",
            now=datetime(2026, 10, 24, 23, tzinfo=UTC) + timedelta(minutes=minute),
        )[0]
    ]
    assert opened == [75, 90, 135, 150]


def test_tables_are_limited() -> None:
    """Clients choose resources and namespaces, and the tables do not grow with them."""
    engine = engine_of(f"rules: [{ALL}]")
    for number in range(2 * MAX_PLACES):
        right = Right("get", f"r{number % (2 * MAX_KINDS)}", namespace=f"n{number}")
        engine.decide(Question.about(KUBECTL, ALICE, right))
    assert len(engine._kinds) == MAX_KINDS
    assert len(engine._places) == MAX_PLACES


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "rules: [{name: a, resources: [pods]}]",
            "policy.yaml:2:10: rules[0].name: write either",
        ),
        ("rules: [{name: a, allow: [get]}]", "write either resources or paths"),
        (
            "rules: [{name: a, allow: [get], deny: [get], resources: [x]}]",
            "either allow",
        ),
        ("rules: [{name: a, allow: [Get], resources: [x]}]", "2:27: rules[0].allow[0]"),
        ("rules: [{name: a, allow: [get], resources: [pods/]}]", "write the plural"),
        ("rules: [{name: a, allow: [get], resources: [po*]}]", "write the plural"),
        ("rules: [{name: a, allow: [get], resources: [x], names: ['*a*']}]", "one *"),
        (
            "rules: [{name: a, allow: [get], resources: [x], name_s: [a]}]",
            "2:49: rules[0]: unknown key",
        ),
        (
            "rules: [{name: a, allow: [get], resources: [x], argv0: [sh]}]",
            "only pods/exec",
        ),
        (
            "rules: [{name: a, allow: [get], resources: [x], ports: [1]}]",
            "only connect",
        ),
        (
            "rules: [{name: a, allow: [get], resources: [x], window: {zone: Mars/A}}]",
            "this zone is unknown",
        ),
        (
            "rules: [{name: a, allow: [get], resources: [x], window: {zone: UTC, from: "
            "'08:00', to: '08:00'}}]",
            "the window is empty",
        ),
        (f"rules: [{ALL}, {ALL}]", "two rules have the name 'all'"),
        ("serial: -1", "cannot be negative"),
        ("expires: 2026-01-01T00:00:00", "add the zone"),
        (
            "not_before: 2026-01-02T00:00:00Z\nexpires: 2026-01-01T00:00:00Z",
            "not after",
        ),
        (f"rules: [{ALL}", "policy.yaml:"),
        ("clusters: &a [x]\nrules: *a", "policy.yaml:"),
    ],
)
def test_problems(text: str, problem: str) -> None:
    """A wrong file is refused with the position."""
    with pytest.raises(ConfigurationError) as caught:
        policy_of(text)
    assert problem in str(caught.value)


#: The keys that may hold an empty value, by what is written instead.
LISTS = "name at least one, or remove the key"
VALUES = "has no value; write one, or remove the key"
SCHEMAS: list[tuple[type[Any], str, str]] = [
    (PolicyFile, "", ""),
    (IdentityClaims, "identities.", "identities: {{{}}}\n"),
    (PolicyRule, "rules[0].", "rules: [{{name: a, allow: [get], {}}}]\n"),
    (
        TimeWindow,
        "rules[0].window.",
        "rules: [{{name: a, allow: [get], window: {{{}}}}}]\n",
    ),
]
KEYS = [
    pytest.param(
        *(path, around, key, LISTS if "tuple" in str(kind) else VALUES), id=path + key
    )
    for schema, path, around in SCHEMAS
    for key, (_, kind) in field_types(schema).items()
    if (path, key) not in (("rules[0].", "name"), ("rules[0].", "allow"))
]


@pytest.mark.parametrize("empty", ["", "[]", "{}", "null", "~"])
@pytest.mark.parametrize(("path", "around", "key", "hint"), KEYS)
def test_empty_keys(path: str, around: str, key: str, hint: str, empty: str) -> None:
    """A key whose entries were removed is refused: it would limit nothing."""
    line = around.format(f"{key}: {empty}") if around else f"{key}: {empty}\n"
    text = line if key == "kind" else f"kind: AgentPolicy\n{line}"
    with pytest.raises(ConfigurationError) as caught:
        read(text, "policy.yaml", PolicyFile)
    number = text.count("\n")
    column = line.index(f"{key}:") + 1
    expected = f"policy.yaml:{number}:{column}: {path}{key}: {hint}"
    assert expected in caught.value.problems


def test_empty_block() -> None:
    """As an owner leaves it who comments the entries out."""
    text = (
        "rules:\n- name: a\n  allow: [delete]\n  resources: [pods]\n"
        "  namespaces:\n  # - app-shop\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        policy_of(text)
    assert caught.value.problems == (f"policy.yaml:6:3: rules[0].namespaces: {LISTS}",)
