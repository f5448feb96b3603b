"""Managed fields of objects that were applied by other means before."""

from __future__ import annotations

from typing import Any

from modules.gitops.agent.objects.field_takeover import taken_over


def entry(manager: str, *fields: str, **more: str) -> dict[str, Any]:
    """As the API server has it."""
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {f"f:{one}": {} for one in fields}},
        **more,
    }


def taken(*entries: dict[str, Any]) -> Any:
    return taken_over({"managedFields": list(entries)}, "agentk")


def test_what_kubectl_applied() -> None:
    """Its fields become ours, and those of people and controllers stay theirs."""
    status = entry("kubectl-client-side-apply", "s", subresource="status")
    found = taken(
        entry("kubectl-client-side-apply", "a"),
        entry("kube-controller-manager", "replicas"),
        entry("kubectl-create", "b"),
        entry("kubectl-edit", "c"),
        status,
    )
    *others, ours = found
    assert [one["manager"] for one in others] == [
        "kube-controller-manager",
        "kubectl-edit",
        "kubectl-client-side-apply",
    ]
    assert (ours["manager"], ours["operation"]) == ("agentk", "Apply")
    assert ours["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}


def test_what_is_ours_already() -> None:
    ours = entry("agentk", "a", operation="Apply")
    assert taken(ours, entry("kubectl-client-side-apply", "b")) is None


def test_nothing_to_take() -> None:
    assert taken(entry("helm", "a")) is None
    assert taken() is None
    assert taken_over({}, "agentk") is None


def test_fields_within_fields() -> None:
    """A whole object and a field of it are both kept."""
    first = entry("kubectl", "a")
    first["fieldsV1"]["f:data"]["."] = {}
    found = taken(first, entry("before-first-apply", "z"))
    assert found[-1]["fieldsV1"] == {"f:data": {".": {}, "f:a": {}, "f:z": {}}}


def test_many_entries() -> None:
    """Each field is taken once: to copy all of them for each entry would not end."""
    entries = [
        entry("kubectl", *(f"{number}-{one}" for one in range(10)))
        for number in range(10_000)
    ]
    (ours,) = taken(*entries)
    assert len(ours["fieldsV1"]["f:data"]) == 100_000
    # What the API server said stays as it was.
    assert len(entries[0]["fieldsV1"]["f:data"]) == 10
