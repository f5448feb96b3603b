"""Whose fields an object's are, where it was applied by other means before."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

__all__ = ["FIELD_MANAGER", "taken_over"]

#: Under which name the API server knows what we set.
FIELD_MANAGER = "agentk"

#: Managers that stand for files that a person or a pipeline applied; what people set by
#: hand (``kubectl-edit``, ``kubectl-patch``) and controllers is theirs.
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
    ``managedFields`` in which *manager* has what was applied from files before.

    So fields that Git does not have go with its first apply, as kubectl's annotation
    does.  None: there is nothing to take over, or *manager* has applied it already.

    Source: client-go, util/csaupgrade.
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
    """Add the fields of *other*; an empty object stands for a field itself."""
    for name, inner in other.items():
        known = found.get(name)
        if isinstance(known, dict) and known and isinstance(inner, dict):
            _unite(known, inner)
        elif inner or known is None:
            # A copy, because more may be added to it.
            found[name] = deepcopy(inner or {})
