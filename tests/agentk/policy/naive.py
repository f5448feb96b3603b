"""
A second interpreter of policies, which knows nothing of the first.

It reads a policy as plain data, and looks at every rule for every request.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
READING = ("get", "list", "watch")


def glob(pattern: str, text: str) -> bool:
    """Whether a pattern with * matches all of a text."""
    return (
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.S)
        is not None
    )


def one_of(patterns: list[str], text: str) -> bool:
    return any(glob(one, text) for one in patterns)


def one_of_groups(patterns: list[str], group: str) -> bool:
    """Whether a group matches; groups of everyone need their whole name, or *."""
    if group in ("system:authenticated", "system:unauthenticated"):
        return group in patterns or "*" in patterns
    return one_of(patterns, group)


def all_groups(request: dict[str, Any]) -> list[str]:
    """The groups of a request, and those that the API server adds."""
    user, named = request["user"], request["groups"]
    if user is None:
        return []
    found = list(named)
    words = user.split(":")
    account = len(words) == 4 and words[:2] == ["system", "serviceaccount"]
    if account and not named and all(re.match("[a-z0-9]", one) for one in words[2:]):
        found += ["system:serviceaccounts", f"system:serviceaccounts:{words[2]}"]
    if user == "system:anonymous":
        found.append("system:unauthenticated")
    elif "system:unauthenticated" not in named:
        found.append("system:authenticated")
    return found


def names_resource(pattern: str, request: dict[str, Any], wide: bool) -> bool:
    """Whether a pattern such as pods/exec means the resource of a request."""
    kind, slash, wanted = pattern.partition("/")
    resource, dot, group = kind.partition(".")
    if resource not in ("*", request["resource"]):
        return False
    if dot:
        if group not in ("*", request["group"]):
            return False
    elif resource != "*" and not wide and request["group"] != "":
        return False
    if not slash:
        return wide or request["subresource"] == ""
    if wanted == "*":
        return resource == "*" or request["subresource"] != ""
    return bool(request["subresource"] == wanted)


def in_window(window: dict[str, Any], now: datetime) -> bool:
    """Whether the wall clock of a zone is within a window, minute by minute."""
    local = now.astimezone(ZoneInfo(window["zone"]))
    begin, end = window.get("from", "00:00"), window.get("to", "24:00")
    days = window.get("days", DAYS)
    wall = local.strftime("%H:%M")
    today, yesterday = (
        DAYS[day.weekday()] in days for day in (local, local - timedelta(days=1))
    )
    if begin < end:
        return bool(today and begin <= wall < end)
    return bool((today and wall >= begin) or (yesterday and wall < end))


def applies(rule: dict[str, Any], request: dict[str, Any], now: datetime) -> bool:
    """Whether each key of a rule matches."""
    wide = "deny" in rule
    verbs = rule["deny"] if wide else rule["allow"]
    checks = [
        request["verb"] in verbs or "*" in verbs,
        not {"*", request["verb"]} & set(rule.get("except_verbs", [])),
        "modules" not in rule or request["module"] in rule["modules"],
        any(names_resource(one, request, wide) for one in rule["resources"]),
        not any(
            names_resource(one, request, not wide) for one in rule.get("except", [])
        ),
        "window" not in rule or in_window(rule["window"], now),
    ]
    namespace, everywhere = request["namespace"], request["everywhere"]
    if "namespaces" in rule:
        matches = namespace != "" and one_of(rule["namespaces"], namespace)
        checks.append(matches or (wide and everywhere))
    if "except_namespaces" in rule:
        if namespace != "":
            checks.append(not one_of(rule["except_namespaces"], namespace))
        elif everywhere:
            checks.append(wide)
    if "names" in rule:
        unknown = request["name"] == ""
        checks.append(wide if unknown else one_of(rule["names"], request["name"]))
    if "users" in rule:
        user = request["user"]
        checks.append(user is not None and one_of(rule["users"], user))
    if "groups" in rule:
        groups = all_groups(request)
        checks.append(any(one_of_groups(rule["groups"], one) for one in groups))
    if "argv0" in rule:
        argv0 = request["argv0"]
        if argv0 == "":
            checks.append(wide)
        else:
            tail = argv0.split("/")[-1]
            checks.append(
                one_of(rule["argv0"], argv0) or (wide and one_of(rule["argv0"], tail))
            )
    return all(checks)


def permits(policy: dict[str, Any], request: dict[str, Any], now: datetime) -> bool:
    """Whether a policy permits a request."""
    identities = policy.get("identities")
    if identities is not None:
        never = identities.get("never", [])
        if request["user"] is None:
            if request["caller"] and not identities.get("agent", False):
                return False
        elif one_of(never, request["user"]):
            return False
        elif any(one_of_groups(never, one) for one in all_groups(request)):
            return False
        elif not one_of(identities.get("users", []), request["user"]):
            return False
        elif not all(
            one_of(identities.get("groups", []), one) for one in request["groups"]
        ):
            return False
    rules = [one for one in policy.get("rules", []) if applies(one, request, now)]
    if any("deny" in one for one in rules):
        return False
    return any("allow" in one for one in rules)
