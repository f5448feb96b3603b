"""Answers of clusters, merged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modules.prometheus.server.merging import (
    ClustersMerger,
    Malformed,
    ResultMerger,
    SeriesMerger,
    TextsMerger,
    parse_answer,
)


def data(content: Any) -> bytes:
    return json.dumps(content).encode()


def test_results() -> None:
    """Samples stay as they are; each series gets its cluster."""
    merger = ResultMerger()
    series = {"metric": {"job": "x"}, "value": [1.5, "NaN"]}
    own = {"metric": {"cluster": "z"}, "histogram": [1.5, {"count": "2"}]}
    merger.add("a", data({"resultType": "vector", "result": [series]}))
    merger.add("b", data({"resultType": "vector", "result": [series, own]}))
    assert json.loads(merger.merged()) == {
        "resultType": "vector",
        "result": [
            {"metric": {"job": "x", "cluster": "a"}, "value": [1.5, "NaN"]},
            {"metric": {"job": "x", "cluster": "b"}, "value": [1.5, "NaN"]},
            {
                "metric": {"exported_cluster": "z", "cluster": "b"},
                "histogram": [1.5, {"count": "2"}],
            },
        ],
    }


def test_a_number() -> None:
    """Grafana tests a data source with 1+1, whose answer is the same everywhere."""
    merger = ResultMerger()
    for name in ("a", "b"):
        merger.add(name, data({"resultType": "scalar", "result": [1, "2"]}))
    expected = {"resultType": "scalar", "result": [1, "2"]}
    assert json.loads(merger.merged()) == expected


def test_a_malformed_answer_changes_nothing() -> None:
    """The other clusters' answer stays."""
    merger = ResultMerger()
    merger.add("a", data({"resultType": "vector", "result": []}))
    malformed: list[Any] = [
        {"resultType": "matrix", "result": []},
        {"resultType": "vector", "result": [{"metric": {"a": 1}}]},
        [],
    ]
    for bad in malformed:
        with pytest.raises(Malformed):
            merger.add("b", data(bad))
    assert json.loads(merger.merged()) == {"resultType": "vector", "result": []}
    with pytest.raises(Malformed):
        parse_answer(b"<html>")


def test_names_and_series() -> None:
    """Names once, series with their cluster, and at most as many as wanted."""
    names = TextsMerger(3, are_names=True)
    series = SeriesMerger(2)
    clusters = ClustersMerger(0)
    for cluster, found in (("a", ["job", "pod"]), ("b", ["pod", "zone"]), ("c", [])):
        names.add(cluster, data(found))
        clusters.add(cluster, data(found))
        series.add(cluster, data([{"job": one} for one in found]))
    assert json.loads(names.merged()) == ["cluster", "job", "pod"]
    assert json.loads(clusters.merged()) == ["a", "b"]
    assert json.loads(series.merged()) == [
        {"job": "job", "cluster": "a"},
        {"job": "pod", "cluster": "a"},
    ]
