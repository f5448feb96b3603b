"""What is served, in the words of the discovery API."""

from __future__ import annotations

from typing import Any

from demo.sandbox.store import KINDS

__all__ = ["DOCUMENTS", "VERSION"]

#: The API that this resembles, and who it is not.
VERSION = "v1.36.0+kas.demo.sandbox"

_REVIEWS = {
    "authorization.k8s.io": {
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    },
    "authentication.k8s.io": {"selfsubjectreviews": "SelfSubjectReview"},
}


def _resource(
    name: str,
    kind: str,
    verbs: tuple[str, ...],
    *,
    namespaced: bool = False,
    short: str = "",
) -> dict[str, Any]:
    return {
        "name": name,
        "singularName": "" if "/" in name else kind.lower(),
        "namespaced": namespaced,
        "kind": kind,
        "verbs": list(verbs),
        **({"shortNames": [short], "categories": ["all"]} if short == "po" else {}),
        **({"shortNames": [short]} if short not in ("", "po") else {}),
    }


def _core() -> list[dict[str, Any]]:
    found = [
        _resource(
            kind.plural,
            kind.kind,
            kind.verbs,
            namespaced=kind.namespaced,
            short=kind.short,
        )
        for kind in KINDS.values()
    ]
    found.append(_resource("pods/log", "Pod", ("get",), namespaced=True))
    exec_verbs = ("create", "get")
    found.append(_resource("pods/exec", "PodExecOptions", exec_verbs, namespaced=True))
    return found


def _list(group_version: str, resources: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _documents() -> dict[str, Any]:
    major, minor = VERSION[1:].split(".")[:2]
    documents: dict[str, Any] = {
        "/version": {
            "major": major,
            "minor": minor,
            "gitVersion": VERSION,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "none",
            "compiler": "none",
            "platform": "a stand-in in Python, no Kubernetes",
        },
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": _list("v1", _core()),
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(name) for name in _REVIEWS],
        },
        "/openapi/v2": {
            "swagger": "2.0",
            "info": {"title": "kas demo sandbox", "version": VERSION},
            "paths": {},
        },
        "/openapi/v3": {
            "paths": {
                "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"},
            }
        },
        "/openapi/v3/api/v1": {
            "openapi": "3.0.0",
            "info": {"title": "kas demo sandbox", "version": VERSION},
            "paths": {
                path: _operations(kind.kind)
                for kind in KINDS.values()
                for path in [_path(kind.plural, kind.namespaced)]
            },
        },
    }
    for group, reviews in _REVIEWS.items():
        group_document = {"kind": "APIGroup", "apiVersion": "v1"} | _group(group)
        documents[f"/apis/{group}"] = group_document
        documents[f"/apis/{group}/v1"] = _list(
            f"{group}/v1",
            [_resource(name, kind, ("create",)) for name, kind in reviews.items()],
        )
    return documents


def _path(plural: str, namespaced: bool) -> str:
    middle = "/namespaces/{namespace}" if namespaced else ""
    return f"/api/v1{middle}/{plural}/{{name}}"


def _operations(kind: str) -> dict[str, Any]:
    """As much as kubectl looks at before it asks us to check the fields."""
    about = {"group": "", "version": "v1", "kind": kind}
    return {
        "patch": {
            "x-kubernetes-group-version-kind": about,
            "parameters": [{"name": "fieldValidation", "in": "query"}],
        }
    }


#: By path.
DOCUMENTS: dict[str, Any] = _documents()
