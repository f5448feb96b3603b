"""A hostile kas that mutates requests: whatever passes, the policy permits."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesHeaderParser
from pathlib import Path
from random import Random
from typing import Any

import yaml

from agentk.policy.document import PolicyFile
from tests.agentk.policy.naive import permits
from tests.agentk.policy.world import FRIDAY, PolicyWorld
from tunnel.config import read
from tunnel.kubernetes import OwnerDenial, RequestInfo, is_discovery, request_info

#: Number of requests; more with the variable.
REQUESTS = int(os.environ.get("TXKAS_TEST_MUTATIONS", "10000"))

POLICY = """\
kind: AgentPolicy
identities:
  {agent: true, users: ["*@example.org", bob], groups: [dev], never: ["root@*"]}
rules:
- {name: read, allow: [get, list, watch], resources: ["*"], except: [secrets]}
- {name: logs, allow: [get], resources: [pods/log], namespaces: [app, "team-*"]}
- {name: shell, allow: [create], resources: [pods/exec], namespaces: [app],
   groups: [dev], argv0: [ls, sh]}
- {name: apps, allow: ["*"], resources: ["*.apps", "*.apps/*"], namespaces: ["team-*"]}
- {name: change, allow: [update], resources: [configmaps]}
- {name: named, allow: [get, list], resources: [secrets], names: [shared]}
- {name: prod, deny: ["*"], resources: ["*"], namespaces: [prod]}
- {name: bob, deny: [list], resources: [configmaps], users: [bob]}
"""

SEGMENTS = [
    *("api", "apis", "v1", "apps", "namespaces", "watch", "proxy", "app", "prod"),
    *("team-a", "txkas", "pods", "secrets", "configmaps", "deployments", "nodes"),
    *("web", "shared", "exec", "log", "scale", "status", "attach", "..", ".", ""),
    *("portforward", "services", "version", "agentk-policy", "clusterroles"),
]
TARGETS = [
    "/api/v1/namespaces/app/pods/web",
    "/api/v1/namespaces/app/pods/web/exec?command=sh",
    "/api/v1/namespaces/app/pods/web/log?follow=1",
    "/api/v1/namespaces/prod/configmaps/x",
    "/api/v1/namespaces/app/configmaps/x",
    "/api/v1/namespaces/txkas/secrets/agentk-token",
    "/api/v1/namespaces/app/secrets?fieldSelector=metadata.name%3Dshared",
    "/api/v1/secrets",
    "/api/v1/configmaps?watch=true",
    "/apis/apps/v1/namespaces/team-a/deployments/web/scale",
    "/apis/apps/v1/namespaces/prod/deployments",
    "/api/v1/namespaces/app/services/web/proxy/a/b",
    "/api/v1/watch/namespaces/app/pods",
    "/version",
]
QUERIES = [
    "watch=1", "watch=True", "watch=0", "command=bash", "command=ls", "limit=x",
    "fieldSelector=metadata.name%3Dshared", "fieldSelector=metadata.name!%3Dshared",
    "fieldSelector=metadata.namespace!%3Dtxkas", "%77atch=1", "a;watch=1",
]  # fmt: skip
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "WATCH"]
LINES = [
    "Impersonate-User: alice@example.org",
    "impersonate-USER:bob",
    "Impersonate-User: root@example.org",
    "Impersonate-User: eve",
    "Impersonate-Group: dev",
    "IMPERSONATE-group:   system:masters",
    "Impersonate-Uid: 1",
    "Impersonate-Extra-a: b",
    "Accept: Impersonate-User: x",
    "Content-Type: application/apply-patch+yaml",
    "Connection: keep-alive",
]


def mutated(chance: Random) -> tuple[str, str, list[str], bool]:
    """Return method, target, header lines, and whether it is an upgrade."""
    path, _, query = chance.choice(TARGETS).partition("?")
    parts = path.split("/")
    for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
        place = chance.randrange(1, len(parts))
        how = chance.randrange(6)
        if how == 0:
            parts.insert(place, chance.choice(SEGMENTS))
        elif how == 1:
            parts[place] = chance.choice(SEGMENTS)
        elif how == 2 and len(parts) > 2:
            del parts[place]
        elif how == 3 and parts[place]:
            at = chance.randrange(len(parts[place]))
            text = parts[place]
            parts[place] = f"{text[:at]}%{ord(text[at]):02x}{text[at + 1 :]}"
        elif how == 4:
            parts[place] += chance.choice(["%2F..", "%2f", ";x", "%5C", "%00", "\\.."])
        else:
            parts[place] = parts[place].upper()
    queries = [query] if query else []
    if chance.random() < 0.3:
        queries.insert(chance.randint(0, len(queries)), chance.choice(QUERIES))
    target = "/".join(parts) + ("?" + "&".join(queries) if queries else "")
    method = chance.choice(METHODS if chance.random() < 0.3 else ["GET", "POST"])
    lines = chance.sample(LINES, chance.choice([0, 1, 1, 2, 3]))
    return method, target, lines, chance.random() < 0.1


def as_data(info: RequestInfo, lines: Message, target: str) -> dict[str, Any]:
    """Return a request as the second interpreter reads it."""
    verb, subresource = info.verb, info.subresource
    if subresource in ("exec", "attach", "portforward"):
        verb = "create"
    if verb == "proxy":
        verb, subresource = "?", "proxy"
    collection = verb in ("list", "watch", "deletecollection")
    scoped = ("nodes", "namespaces", "clusterroles")
    found = re.search(r"[?&]command=([^&]*)", target)
    groups = lines.get_all("Impersonate-Group", [])
    user = lines["Impersonate-User"]
    return {
        "group": info.group,
        "resource": info.resource,
        "subresource": subresource,
        "verb": verb,
        "namespace": info.namespace,
        "everywhere": collection
        and not info.namespace
        and not (info.resource in scoped and info.group in ("", "rbac")),
        "name": info.name,
        "user": user.strip() if user else None,
        "groups": [one.strip() for one in groups],
        "module": "kubernetes_api",
        "caller": True,
        "argv0": found[1] if found and subresource == "exec" else "",
    }


def test_mutations(tmp_path: Path) -> None:
    """What the guard permits is permitted by a second interpreter of the policy."""
    world = PolicyWorld(tmp_path, POLICY)
    world.start()
    policy = yaml.safe_load(POLICY)
    read(POLICY, "policy.yaml", PolicyFile)
    now = datetime.fromtimestamp(FRIDAY, UTC)
    origin = world.clients.of_module("kubernetes_api").upstream.origins[0]
    chance = Random(20261128)
    passed = 0
    for _ in range(REQUESTS):
        method, target, lines, upgrade = mutated(chance)
        fields = "".join(f"\r\n{one}" for one in lines).encode()
        try:
            world.guard.check(origin, method.encode(), target.encode(), fields, upgrade)
        except OwnerDenial:
            continue
        passed += 1
        shown = method, target, lines, upgrade
        info = request_info(method.encode(), target.encode())
        message = BytesHeaderParser().parsebytes(fields[2:] + b"\r\n\r\n")
        request = as_data(info, message, target)
        # Nobody without a name has groups.
        assert request["user"] or not request["groups"], shown
        identity = {
            **policy,
            "rules": [{"name": "a", "allow": ["*"], "resources": ["*/*"]}],
        }
        assert permits(identity, request, now), shown
        if is_discovery(method.encode(), info, upgrade):
            continue
        assert info.is_resource, shown
        assert permits(policy, request, now), shown
        if info.verb == "update" and not info.subresource:
            assert permits(policy, {**request, "verb": "create"}, now), shown
        # agentk's own namespace.
        if "txkas" in info.namespace:
            assert request["verb"] in ("get", "list", "watch"), shown
            assert info.resource not in ("secrets", "configmaps"), shown
    # The test would be worthless if nothing passed.
    assert passed > REQUESTS / 50
