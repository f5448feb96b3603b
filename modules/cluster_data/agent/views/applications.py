"""
View ``applications``: objects of other tools that declare an application.

These are ``Application`` of app.k8s.io (whose controller rarely runs) and of Argo CD,
and ``Kustomization`` and ``HelmRelease`` of Flux.  Their fields have no fixed types
here, because another program may define a kind of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from modules.cluster_data.agent.shapes import DeclaringObject
from modules.cluster_data.wire.safe_links import is_safe_link
from tunnel.api import (
    ClusterObject,
    ClusterView,
    ObjectKind,
    ViewRow,
    common_columns,
    shortened,
)
from tunnel.kubernetes import label_requirements

__all__ = ["APPLICATIONS", "MAX_ENTRIES", "MAX_REQUIREMENTS"]

#: Maximum number of entries of each list in a row, so that the row has room for all.
MAX_ENTRIES = 8

#: Maximum number of requirements of a selector; kas compares each of them with the
#: labels of each workload.
MAX_REQUIREMENTS = 20

_APPLICATION = ObjectKind("app.k8s.io", "v1beta1", "Application")
_ARGO = ObjectKind("argoproj.io", "v1alpha1", "Application")
_KUSTOMIZATION = ObjectKind("kustomize.toolkit.fluxcd.io", "v1", "Kustomization")
_RELEASE = ObjectKind("helm.toolkit.fluxcd.io", "v2", "HelmRelease")

#: How a selector of kubectl writes each operator.
_EXPRESSIONS: Mapping[Any, str] = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


def _rows(one: ClusterObject) -> Iterator[ViewRow]:
    found = cast(DeclaringObject, one.found)
    spec, status = _mapping(found.spec), _mapping(found.status)
    columns = common_columns(one)
    if one.kind == _APPLICATION:
        columns.update(_application(spec, status))
    elif one.kind == _ARGO:
        columns.update(_argo(spec, status))
    else:
        columns.update(_flux(spec, status))
    yield ViewRow({key: value for key, value in columns.items() if value != ""})


def _application(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    about = _mapping(spec.get("descriptor"))
    columns: dict[str, Any] = {
        "tool": "app.k8s.io",
        **{key: _text(about, key) for key in ("type", "version", "description")},
        "owners": [*map(_owner, _mappings(about.get("owners")))],
        "links": {
            url: _text(link, "description")
            for link in _mappings(about.get("links"))
            if is_safe_link(url := str(link.get("url", "")))
        },
        "components": [*map(_kind, _mappings(spec.get("componentKinds")))],
        "info": {
            _text(one, "name"): _text(one, "value")
            for one in _mappings(spec.get("info"))
            if _text(one, "type") != "Reference"
        },
        # The name of the object is not resolved: it may be a Secret.
        "references": {
            _text(one, "name"): _reference(_mapping(one.get("valueFrom")))
            for one in _mappings(spec.get("info"))
            if _text(one, "type") == "Reference"
        },
        "stated": _stated(status, ready=_text(status, "componentsReady")),
    }
    try:
        columns["selector"] = _selector(_mapping(spec.get("selector")))
    except ValueError as error:
        columns["problem"] = str(error)
    return {key: value for key, value in columns.items() if value not in ([], {})}


def _owner(owner: Mapping[str, Any]) -> str:
    name, email = _text(owner, "name"), _text(owner, "email")
    return shortened(f"{name} <{email}>" if email else name)


def _kind(one: Mapping[str, Any]) -> str:
    """Return a kind of components, such as ``Deployment.apps``."""
    # Some write the version behind the group.
    group = _text(one, "group").partition("/")[0]
    kind = _text(one, "kind")
    return kind if group in ("", "core") else f"{kind}.{group}"


def _reference(source: Mapping[str, Any]) -> str:
    """Return the kind and name of an object that has a value."""
    of = next((_mapping(value) for key, value in source.items() if key != "type"), {})
    path = "/".join(filter(None, (_text(of, "namespace"), _text(of, "name"))))
    return shortened(f"{_text(source, 'type')} {path}".strip())


def _selector(selector: Mapping[str, Any]) -> str:
    """
    Return a selector as text, such as ``app=web,tier in (front,back),!old``.

    :raises ValueError: the selector selects nothing, is invalid, or is too long.
    """
    labels = _mapping(selector.get("matchLabels"))
    parts = [f"{key}={value}" for key, value in labels.items()]
    expressions = selector.get("matchExpressions")
    for one in expressions if isinstance(expressions, list) else ():
        expression = _mapping(one)
        values = expression.get("values")
        text = ",".join(map(str, values if isinstance(values, list) else ()))
        try:
            form = _EXPRESSIONS[expression.get("operator")]
        except (KeyError, TypeError):
            raise ValueError("the selector has an invalid expression") from None
        parts.append(form.format(key=expression.get("key"), values=text))
    if not parts:
        raise ValueError("the selector is empty, so that no component is known")
    found = ",".join(parts)
    requirements = label_requirements(found)
    if len(requirements) > MAX_REQUIREMENTS:
        raise ValueError("the selector is too long")
    return found


def _argo(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    # An application may have several sources; the first one names it.
    several = [*_mappings(spec.get("sources"))]
    source = _mapping(spec.get("source")) or (several[0] if several else {})
    sync, target = _mapping(status.get("sync")), _mapping(spec.get("destination"))
    return {
        "tool": "argocd",
        "repository": _repository(_text(source, "repoURL")),
        "path": _text(source, "path") or _text(source, "chart"),
        "wanted": _text(source, "targetRevision"),
        "revision": _text(sync, "revision"),
        "target": _text(target, "namespace"),
        "cluster": _text(target, "name") or _text(target, "server"),
        "stated": _stated(
            status,
            health=_text(_mapping(status.get("health")), "status"),
            sync=_text(sync, "status"),
        ),
    }


def _flux(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    chart = _mapping(_mapping(spec.get("chart")).get("spec"))
    source = (
        _mapping(spec.get("sourceRef"))
        or _mapping(chart.get("sourceRef"))
        or _mapping(spec.get("chartRef"))
    )
    parts = (_text(source, key) for key in ("kind", "namespace", "name"))
    suspended = spec.get("suspend") is True
    return {
        "tool": "flux",
        "repository": shortened("/".join(filter(None, parts))),
        "path": _text(spec, "path") or _text(chart, "chart"),
        "wanted": _text(chart, "version"),
        "revision": _text(status, "lastAppliedRevision")
        or _text(status, "lastAttemptedRevision"),
        "target": _text(spec, "targetNamespace"),
        "stated": _stated(status, suspended="true" if suspended else ""),
    }


def _stated(status: Mapping[str, Any], **more: str) -> dict[str, str]:
    """Return the part of a status that readers see as a note."""
    stated = {key: value for key, value in more.items() if value}
    for one in _mappings(status.get("conditions")):
        if (kind := _text(one, "type")) in ("Ready", "Error", "ComparisonError"):
            texts = (_text(one, "status"), _text(one, "message"))
            stated[kind] = shortened(": ".join(filter(None, texts)))
    return stated


def _repository(address: str) -> str:
    """Return the address of a repository without a user and a password."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        return address
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return shortened(value) if isinstance(value, str) else ""


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _mappings(found: Any) -> Iterator[Mapping[str, Any]]:
    for one in found[:MAX_ENTRIES] if isinstance(found, list) else ():
        if isinstance(one, dict):
            yield one


APPLICATIONS = ClusterView(
    "applications",
    dict.fromkeys((_APPLICATION, _ARGO, _KUSTOMIZATION, _RELEASE), DeclaringObject),
    _rows,
)
