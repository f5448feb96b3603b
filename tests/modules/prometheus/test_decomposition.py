"""Which queries are the same for each cluster alone and for all of them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modules.prometheus.server.decomposition import (
    NotDecomposable,
    query_for_one_cluster,
)
from modules.prometheus.server.promql_tokens import TokenKind, tokens_of


@pytest.mark.parametrize(
    "query",
    [
        "up",
        'up{job="a"} offset 5m',
        "rate(http_requests_total[5m])",
        "sum by (cluster) (up)",
        "sum(up) by (cluster, job)",
        'SUM BY ("cluster", pod) (rate(x[5m] @ end()))',
        "sum without (pod) (up)",
        "avg(up) without (instance)",
        "topk by (cluster) (5, up)",
        'count_values by (cluster) ("version", build_info)',
        "a / b",
        "a / on (cluster, pod) group_left (node) b",
        "a * ignoring (code) b",
        "a and (b) or (c) unless (d)",
        "time() - process_start_time_seconds",
        "histogram_quantile(0.9, sum by (cluster, le) (rate(x_bucket[5m])))",
        'label_replace(up, "zone", "$1", "cluster_name", "(.*)")',
        "max_over_time(sum by (cluster) (up)[1h:5m])",
        "hour(timestamp(up)) > 8",
        "1 + 1",
        "sum",
        'up{sum="x", on="y", by="z"}',
        "-(up) ^ 2 # sum(up)\n",
        'up{job="sum(up)"}',
        "cluster:cpu:rate5m",
        "",
    ],
)
def test_decomposes(query: str) -> None:
    """No step combines series of different clusters."""
    query_for_one_cluster(query)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("sum(up)", "write sum by (cluster)"),
        ("sum by (job) (up)", "add cluster to its labels"),
        ("Avg(up) BY (job)", "add cluster to its labels"),
        ("sum without (cluster, pod) (up)", "without (cluster)"),
        ("sum by (cluster) (up) / sum(up)", "write sum by (cluster)"),
        ("sum by (cluster) (count(up))", "write count by (cluster)"),
        ("topk(5, up)", "write topk by (cluster)"),
        ("limitk(5, up)", "limitk"),
        ("a / on (pod) b", "add cluster to its labels"),
        ("a / on () b", "add cluster to its labels"),
        ("a / ignoring (cluster) b", "remove cluster from its labels"),
        ("absent(up)", "absent"),
        ("scalar(up)", "scalar"),
        ("up or vector(0)", "belongs to no cluster"),
        ("hour() > 8", "belongs to no cluster"),
        ("sort_desc(up)", "order"),
        ("info(up)", "joins series"),
        ('up{cluster="a"}', "the parameter clusters"),
        ('up{"cluster"=~"a|b"}', "the parameter clusters"),
        ('{job="x", cluster!="a"}', "the parameter clusters"),
        ('label_replace(up, "cluster", "x", "job", ".*")', "must not use"),
        ("label_replace(up, 'clu\\x73ter', 'x', 'job', '.*')", "must not use"),
        ('count_values by (cluster) ("cluster", up)', "must not use"),
        ('label_replace(up, "x", "$1", "exported_cluster", ".*")', "must not use"),
        ("#\rsum(up)", "write sum by (cluster)"),
        ("median(up)", "does not know the function median"),
        ("up $x", "character 4"),
    ],
)
def test_does_not_decompose(query: str, reason: str) -> None:
    """The text says what to change."""
    with pytest.raises(NotDecomposable) as refused:
        query_for_one_cluster(query)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("sum by (cluster) (up)", "sum by () (up)"),
        ("sum(up) by (job, cluster,)", "sum(up) by (job)"),
        ('SUM BY ("cluster", pod) (up)', "SUM BY (pod) (up)"),
        ("count by (exported_cluster, cluster) (up)", "count by (cluster) (up)"),
        ("sum without (exported_cluster) (up)", "sum without (cluster) (up)"),
        (
            "a / on (cluster, pod) group_left (exported_cluster) b",
            "a / on (pod) group_left (cluster) b",
        ),
        ('up{exported_cluster="a"}', 'up{cluster="a"}'),
        ("up{'exported_exported_cluster'!='a'}", """up{"exported_cluster"!='a'}"""),
        ('exported_cluster{job="cluster"}', 'exported_cluster{job="cluster"}'),
        ("sum by (cluster_name, cluster) (x)", "sum by (cluster_name) (x)"),
    ],
)
def test_form_for_one_cluster(query: str, sent: str) -> None:
    """Each cluster evaluates its own labels, without the label of the answer."""
    assert query_for_one_cluster(query) == sent


def test_tokens() -> None:
    """Strings and comments hide words."""
    kinds = [(one.kind, one.text) for one in tokens_of("a{b='c\\'d'}[5m] # x\n+`e\\`")]
    assert kinds == [
        (TokenKind.NAME, "a"),
        (TokenKind.SIGN, "{"),
        (TokenKind.NAME, "b"),
        (TokenKind.SIGN, "="),
        (TokenKind.STRING, "c'd"),
        (TokenKind.SIGN, "}"),
        (TokenKind.SIGN, "["),
        (TokenKind.NUMBER, "5m"),
        (TokenKind.SIGN, "]"),
        (TokenKind.SIGN, "+"),
        (TokenKind.STRING, "e\\"),
    ]


@given(st.text(alphabet="sumbyonclter ()[]{}\"'`\\,=~!5m#\n", max_size=60))
def test_any_text(query: str) -> None:
    """No text causes an exception."""
    with suppress(NotDecomposable):
        query_for_one_cluster(query)
