"""Takeover of the fields of objects that were previously applied by other means."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

__all__ = ["FIELD_MANAGER", "taken_over"]

#: Name under which the API server records the fields that agentk sets.
FIELD_MANAGER = "agentk"

#: Field managers of users and pipelines that apply objects from files.  Fields that
#: users set by hand (``kubectl-edit``, ``kubectl-patch``) and fields of controllers
#: keep their managers.
_FROM_FILES = frozenset(
    (
        *("before-first-apply", "kubectl", "kubectl-client-side-apply"),
        *("kubectl-create", "kubectl-last-applied", "kubectl-replace"),
    )
)


def taken_over(
    metadata: Mapping[str, Any], manager: str
) -> list[dict[str, Any]] | None:
    """
    Return ``managedFields`` in which *manager* owns the fields that were applied from
    files before.

    As a result, the first apply of *manager* removes fields that Git does not contain,
    as kubectl does with the help of its annotation. Return None if no such fields
    exist, or if *manager* has already applied the object. Source: client-go,
    util/csaupgrade.
    """
    entries: list[dict[str, Any]] = list(metadata.get("managedFields") or ())
    others: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    last: dict[str, Any] | None = None
    for one in entries:
        whole = one.get("operation"), one.get("subresource") or ""
        if one.get("manager") == manager and whole == ("Apply", ""):
            return None
        if one.get("manager") in _FROM_FILES and whole[1] == "":
            _unite(fields, one.get("fieldsV1") or {})
            last = one
        else:
            others.append(one)
    if last is None:
        return None
    ours = {**last, "manager": manager, "operation": "Apply", "fieldsV1": fields}
    return [*others, ours]


def _unite(found: dict[str, Any], other: Mapping[str, Any]) -> None:
    """
    Add the fields of *other* to *found*; an empty object stands for the field itself.
    """
    for name, inner in other.items():
        known = found.get(name)
        if isinstance(known, dict) and known and isinstance(inner, dict):
            _unite(known, inner)
        elif inner or known is None:
            # Copy the value, because further fields may be added to it.
            found[name] = deepcopy(inner or {})
