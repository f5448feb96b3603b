"""Which lists are reviewed for a user: a user without rights must not learn of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modules.cluster_data.agent.view_registry import OWN_VIEWS
from modules.cluster_data.server import reader as reader_module
from modules.cluster_data.server import rights as rights_module
from modules.cluster_data.server.store.queries import LISTS_OF_VIEWS
from tests.modules.cluster_data.pair import deployment, node
from tests.modules.cluster_data.test_rest import RestStand

WARNING = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "web.1", "namespace": "shop"},
    "type": "Warning",
    "reason": "BackOff",
    "involvedObject": {"kind": "Pod", "name": "web", "namespace": "shop"},
}


def broken_pod(namespace: str = "shop") -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": namespace},
        "status": {
            "phase": "Pending",
            "containerStatuses": [
                {"name": "a", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
            ],
        },
    }


class ReviewedStand(RestStand):
    """
    A stand that records reviews.

    :ivar reviewed: the lists that the API server was asked about.
    """

    def __init__(self, folder: Path) -> None:
        self.reviewed: list[str] = []
        super().__init__(folder)

    def review(self, user: str, spec: Any) -> bool:
        asked = spec["resourceAttributes"]
        self.reviewed.append(f"{asked['resource']}@{asked['namespace']}")
        return super().review(user, spec)

    def asked(self, path: str) -> list[str]:
        """Return the reviews for a user without rights, who has asked nothing yet."""
        self.clock.advance(rights_module.DENIED_SECONDS)
        self.reviewed.clear()
        assert self.names(path, "bob") == set()
        return sorted(self.reviewed)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[ReviewedStand]:
    stand = ReviewedStand(tmp_path)
    elsewhere = deployment("elsewhere")
    elsewhere["metadata"]["namespace"] = "other"
    stand.add(deployment("web"), elsewhere, node("a"))
    stand.lead()
    stand.advance(3)
    yield stand
    stand.close()


def test_lists_of_views() -> None:
    """kas knows the kinds of the views that every cluster has."""
    assert {
        view.name: {f"{kind.kind.lower()}s" for kind in view.kinds}
        for view in OWN_VIEWS
    } == {name: set(lists) for name, lists in LISTS_OF_VIEWS.items()}


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("problems?clusters=agent-1", broken_pod()),
        ("problems?clusters=agent-1&namespace=shop", broken_pod()),
        ("events?clusters=agent-1", WARNING),
        ("events?clusters=agent-1&namespace=shop", WARNING),
        ("problems?clusters=agent-1", node("b", ready=False)),
        ("objects?kind=deploy&clusters=agent-1&namespace=shop", deployment("more")),
    ],
)
def test_hidden_rows_change_no_reviews(
    stand: ReviewedStand, path: str, hidden: Any
) -> None:
    before = stand.asked(path)
    assert before
    stand.add(hidden)
    stand.advance(3)
    assert stand.asked(path) == before


@pytest.mark.parametrize("kind", ["deploy", "events", "nodes"])
def test_each_namespace_of_a_query_looks_the_same(
    stand: ReviewedStand, kind: str
) -> None:
    """Whether it has rows, or does not exist."""
    path = f"objects?kind={kind}&clusters=agent-1&namespace="
    for name in ("other", "unknown"):
        asked = stand.asked(path + name)
        assert [one.replace(name, "shop") for one in asked] == stand.asked(
            f"{path}shop"
        )


def test_many_namespaces(stand: ReviewedStand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, each user would cost reviews of each kind in each of them."""
    stand.add(broken_pod())
    stand.advance(3)
    path = "problems?clusters=agent-1"
    assert len([one for one in stand.asked(path) if not one.endswith("@")]) == 12
    monkeypatch.setattr(reader_module, "MAX_LISTS_ALWAYS", 11)
    asked = stand.asked(path)
    assert [one for one in asked if not one.endswith("@")] == ["pods@shop"]


def test_rows_in_a_namespace(stand: ReviewedStand) -> None:
    """The reviews open exactly the permitted rows."""
    stand.add(broken_pod(), broken_pod("other"))
    stand.advance(3)
    stand.allowed = {("alice", "/pods@shop")}
    for more, expected in (("", {"web"}), ("&namespace=other", set())):
        assert stand.names(f"problems?clusters=agent-1{more}") == expected
