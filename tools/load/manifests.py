"""Manifests of any number of objects."""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["EACH", "manifest_files", "manifests"]

#: Number of objects of one Namespace, including the Namespace.
EACH = 50


def manifests(count: int, prefix: str) -> list[dict[str, Any]]:
    """
    Return Namespaces with `EACH` objects: ConfigMaps, Secrets, and Deployments without
    replicas.
    """
    found: list[dict[str, Any]] = []
    for number in range(count):
        space = f"{prefix}-{number // EACH:03}"
        if number % EACH == 0:
            found.append(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
            )
            continue
        metadata = {"name": f"one-{number}", "namespace": space}
        text = {f"key-{each}": f"value {each} of {number}" for each in range(10)}
        if number % 5 == 1:
            labels = {"app": metadata["name"]}
            container = {"name": "app", "image": "example.org/app:1"}
            template = {"metadata": {"labels": labels}}
            template["spec"] = {"containers": [container]}  # type: ignore[dict-item]
            spec = {"replicas": 0, "selector": {"matchLabels": labels}}
            spec["template"] = template
            kind: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "Deployment"}
            found.append({**kind, "metadata": metadata, "spec": spec})
        elif number % 5 == 2:
            kind = {"apiVersion": "v1", "kind": "Secret", "stringData": text}
            found.append({**kind, "metadata": metadata})
        else:
            kind = {"apiVersion": "v1", "kind": "ConfigMap", "data": text}
            found.append({**kind, "metadata": metadata})
    return found


def manifest_files(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Return the objects as files of twenty objects each."""
    found: dict[str, str] = {}
    for begin in range(0, len(objects), 20):
        part = objects[begin : begin + 20]
        found[f"apps/{begin:05}.yaml"] = yaml.safe_dump_all(part)
    return found
