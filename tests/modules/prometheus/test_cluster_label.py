"""The label of a cluster in merged answers."""

from __future__ import annotations

from modules.prometheus.server.cluster_label import (
    CLUSTER,
    labels_in_answer,
    name_in_answer,
    own_name,
)


def test_names() -> None:
    """Each label has another name in the answer, and the name leads back to it."""
    labels = ["cluster", "exported_cluster", "exported_exported_cluster", "job"]
    named = [name_in_answer(one) for one in labels]
    assert len({CLUSTER, *named}) == 5
    assert [own_name(one) for one in named] == labels
    assert own_name(CLUSTER) == ""
    assert name_in_answer("xexported_cluster") == "xexported_cluster"


def test_label_sets() -> None:
    """Different label sets of one cluster stay different."""
    sets = [
        {"cluster": "x"},
        {"exported_cluster": "x"},
        {"cluster": "x", "exported_cluster": "y"},
        {"exported_cluster": "y"},
        {},
    ]
    found = [tuple(sorted(labels_in_answer(one, "a").items())) for one in sets]
    assert len(set(found)) == len(sets)
    assert found[0] == (("cluster", "a"), ("exported_cluster", "x"))
