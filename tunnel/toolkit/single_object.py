"""
Check of a single Kubernetes object that a peer sent, before it is applied.

``kubectl apply`` applies the items of a list, whatever name and kind the list has.  So
a manifest that claims to be a certain object is checked before it is printed or stored.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["MAX_NAME", "ObjectName", "check_manifest", "object_name"]

#: Maximum number of characters of each part of an object's name, as in API servers.
MAX_NAME = 253

#: Group, kind, namespace (empty if it has none), and name.
ObjectName = tuple[str, str, str, str]


def object_name(found: Any) -> ObjectName:
    """
    Return the name of one object.

    :raises ValueError: *found* is a list of objects, or not an object.
    """
    try:
        group, _, _ = found["apiVersion"].rpartition("/")
        metadata = found["metadata"]
        namespace = metadata.get("namespace", "")
        parts = (group, found["kind"], namespace, metadata["name"])
        # Surrogates, which messages cannot contain, cannot be encoded.
        fits = all(len(one.encode()) <= MAX_NAME for one in parts)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("it is not a Kubernetes object") from None
    if not fits:
        raise ValueError(f"its name has more than {MAX_NAME} characters")
    if "items" in found or parts[1].endswith("List"):
        raise ValueError("it is a list of objects")
    return parts


def check_manifest(text: str, name: ObjectName) -> Any:
    """
    Return the object in the JSON document *text*.

    :param name: the required name.
    :raises ValueError: if the text contains another object, or several objects.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if object_name(found) != name:
        raise ValueError("it is not the object that it is listed as")
    return found
