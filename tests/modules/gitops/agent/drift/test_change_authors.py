"""Who changed an object: named where that is certain, and else nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from twisted.internet.task import Clock

from modules.gitops.agent.drift import change_authors
from modules.gitops.agent.drift.change_authors import Changes, Writes
from modules.gitops.agent.objects.differences import Writer
from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import KubernetesResource, KubernetesWrite

MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)
KEY = ObjectKey("", "ConfigMap", "a", "x")
WRITER = Writer("kubectl-edit", "Update", "", "1970-01-01T00:01:40Z")
ALICE = KubernetesWrite(
    "user:alice", "patch", "", "configmaps", "a", "x", "", "kubectl-edit", 100.0, 0.2
)


def named(
    *writes: KubernetesWrite, changes: int = 1, writer: Writer = WRITER
) -> tuple[str, ...]:
    found = Writes(lambda: 0.0)
    for one in writes:
        found.add(one)
    return found.of(MAPS, KEY, -1.0, [writer], changes)


def test_one() -> None:
    assert named(ALICE) == ("user:alice",)
    bob = attrs.evolve(ALICE, credential_id="user:bob")
    assert named(ALICE, bob, changes=2) == ("user:alice", "user:bob")


def test_nobody() -> None:
    """Another object, manager, second or subresource; or a change beside."""
    assert named() == ()
    for other in (
        attrs.evolve(ALICE, name="y"),
        attrs.evolve(ALICE, namespace="b"),
        attrs.evolve(ALICE, manager="kubectl-patch"),
        attrs.evolve(ALICE, time=102.5),
        attrs.evolve(ALICE, subresource="status"),
        attrs.evolve(ALICE, verb="delete"),
    ):
        assert named(other) == ()
    assert named(ALICE, changes=2) == ()
    assert named(attrs.evolve(ALICE, manager=""), writer=Writer("", "Update")) == ()


def test_a_scale() -> None:
    """API servers note no time for it; a write of the object itself is none."""
    scaled = Writer("kubectl", "Update", "scale", "")
    scale = attrs.evolve(ALICE, subresource="scale", manager="kubectl")
    assert named(scale, writer=scaled) == ("user:alice",)
    for other in (
        attrs.evolve(scale, subresource=""),
        attrs.evolve(scale, manager="kubectl-edit"),
    ):
        assert named(other, writer=scaled) == ()
    assert named(scale, changes=2, writer=scaled) == ()
    assert named(scale, writer=attrs.evolve(scaled, subresource="")) == ()


def test_a_delete() -> None:
    assert named(attrs.evolve(ALICE, verb="delete"), changes=0) == ("user:alice",)
    assert named(ALICE, changes=0) == ()
    part = attrs.evolve(ALICE, verb="delete", subresource="ephemeral")
    assert named(part, changes=0) == ()


def test_more_than_is_remembered() -> None:
    """There may have been others among them."""
    most = change_authors.MAX_OF_ONE - 1
    assert named(*[ALICE] * most, changes=most) == ("user:alice",)
    assert named(*[ALICE] * (most + 1), changes=1) == ()
    assert named(*[ALICE] * most, changes=most + 1) == ()
    # Of a controller that comes through kas, too.
    status = attrs.evolve(ALICE, subresource="status")
    assert named(ALICE, *[status] * 20) == ("user:alice",)
    delete = attrs.evolve(ALICE, verb="delete")
    assert named(*[delete] * (most + 1), changes=0) == ()


def test_what_was_before_it_was_applied() -> None:
    """The last delete is another's."""
    clock = Clock()
    found = Writes(clock.seconds)
    for verb, changes in (("delete", 0), ("patch", 1)):
        clock.advance(1)
        found.add(attrs.evolve(ALICE, verb=verb))
        before = clock.seconds() - 0.5
        assert found.of(MAPS, KEY, before, [WRITER], changes) == ("user:alice",)
        assert found.of(MAPS, KEY, before + 1, [WRITER], changes) == ()


def test_what_is_remembered() -> None:
    clock = Clock()
    found = Writes(clock.seconds)
    found.add(ALICE)
    clock.advance(change_authors.REMEMBERED)
    assert found.of(MAPS, KEY, -1.0, [WRITER], 1) == ()
    for number in range(change_authors.MAX_OBJECTS):
        found.add(attrs.evolve(ALICE, name=str(number)))
    found.add(ALICE)
    assert len(found._found) == change_authors.MAX_OBJECTS
    assert found.of(MAPS, KEY, -1.0, [WRITER], 1) == ("user:alice",)


def test_changes() -> None:
    clock = Clock()
    found = Changes(clock.seconds)

    def note(time: int, subresource: str = "") -> None:
        fields: list[dict[str, Any]] = [
            {"manager": "m", "time": str(time), "subresource": subresource}
        ]
        found.note(KEY, {"managedFields": fields})

    assert found.lately(KEY) == 1
    note(1)
    note(1)
    note(2)
    assert found.lately(KEY) == 2
    clock.advance(10)
    note(3)
    clock.advance(10)
    assert found.lately(KEY) == 1
    found.forget(KEY)
    assert found.lately(KEY) == 1


def test_what_a_change_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest of large fields is made so often and no more; then it is a change."""
    clock, made = Clock(), []
    digest = change_authors._digest

    def counted(metadata: Mapping[str, Any]) -> str:
        made.append(clock.seconds())
        return digest(metadata)

    monkeypatch.setattr(change_authors, "_digest", counted)
    found = Changes(clock.seconds)
    metadata = {"managedFields": [{"manager": "m", "time": "1"}]}
    for _ in range(change_authors.MAX_OF_ONE):
        found.note(KEY, metadata)
    assert found.lately(KEY) == 1
    for _ in range(50):
        found.note(KEY, metadata)
    assert len(made) == change_authors.MAX_OF_ONE
    assert found.lately(KEY) == change_authors.MAX_OF_ONE
    clock.advance(change_authors.TOGETHER + 1)
    found.note(KEY, metadata)
    found.note(KEY, metadata)
    assert len(made) == change_authors.MAX_OF_ONE + 2
    assert found.lately(KEY) == 1
