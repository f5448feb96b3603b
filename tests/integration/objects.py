"""Objects for an API server, as they are sent to it."""

from __future__ import annotations

import json

JSON = "Content-Type: application/json"


def config_map(name: str, **data: str) -> bytes:
    """An object to POST."""
    return json.dumps({"metadata": {"name": name}, "data": data}).encode()


def config_maps(namespace: str) -> str:
    """Where to POST it."""
    return f"/api/v1/namespaces/{namespace}/configmaps"
