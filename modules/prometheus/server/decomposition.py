"""
The form for a single cluster of a query about several clusters, if there is one.

The model: each series of a cluster has the label ``cluster``, and a query is evaluated
over the series of all clusters.  It decomposes if no step of its evaluation combines
series of different clusters.  Then the answer is the union of the answers of all
clusters, each with its label, and each cluster gets the query without that label:
``sum by (cluster, job) (up)`` in one cluster is ``sum by (job) (up)``.  A label
``cluster`` of the cluster itself has another name in the query, see `cluster_label`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from modules.prometheus.server.cluster_label import (
    CLUSTER,
    is_about_cluster,
    own_name,
)
from modules.prometheus.server.promql_tokens import (
    PromqlToken,
    TokenKind,
    UnreadableQuery,
    tokens_of,
)

__all__ = ["NotDecomposable", "query_for_one_cluster"]

_AGGREGATIONS: Final = frozenset(
    "avg bottomk count count_values group limit_ratio limitk max min quantile stddev "
    "stdvar sum topk".split()
)

#: Words before a list of labels.
_BEFORE_LABELS: Final = frozenset(
    ("by", "without", "on", "ignoring", "group_left", "group_right")
)

#: Words before a parenthesis that is not the argument of a function.
_KEYWORDS: Final = frozenset(
    ("and", "or", "unless", "bool", "offset", "atan2", "group_left", "group_right")
)

#: Functions that compute each series from one series, or from the series of one
#: histogram.
_OF_ONE_SERIES: Final = frozenset(
    (
        "abs acos acosh asin asinh atan atanh avg_over_time ceil changes clamp "
        "clamp_max clamp_min cos cosh count_over_time deg delta deriv "
        "double_exponential_smoothing end exp first_over_time floor histogram_avg "
        "histogram_count histogram_fraction histogram_quantile histogram_stddev "
        "histogram_stdvar histogram_sum holt_winters idelta increase irate "
        "label_join label_replace last_over_time ln log10 log2 mad_over_time "
        "max_over_time min_over_time pi predict_linear present_over_time "
        "quantile_over_time rad rate resets round sgn sin sinh sqrt start "
        "stddev_over_time stdvar_over_time sum_over_time tan tanh time timestamp "
        "ts_of_first_over_time ts_of_last_over_time ts_of_max_over_time "
        "ts_of_min_over_time"
    ).split()
)

#: Functions of a time, which without an argument return one series without labels.
_OF_TIME: Final = frozenset(
    "day_of_month day_of_week day_of_year days_in_month hour minute month year".split()
)

_NOT_OF_ONE: Final = {
    "absent": "whether a series is absent depends on all clusters",
    "absent_over_time": "whether a series is absent depends on all clusters",
    "info": "it joins series of different clusters",
    "scalar": "its result is a number, which cannot have a cluster",
    "sort": "the order of an answer is the order of its clusters",
    "sort_desc": "the order of an answer is the order of its clusters",
    "sort_by_label": "the order of an answer is the order of its clusters",
    "sort_by_label_desc": "the order of an answer is the order of its clusters",
    "vector": "its result belongs to no cluster",
}

#: Functions that read or write a label whose name is an argument.
_WRITERS: Final = frozenset(("label_replace", "label_join", "count_values"))

_COMPARISONS: Final = frozenset(("=", "!=", "=~", "!~"))


class NotDecomposable(Exception):
    """
    Error for a query that cannot be answered cluster by cluster; the text contains the
    reason.
    """


def query_for_one_cluster(query: str) -> str:
    """
    Return the query that gives the part of each cluster.

    Errors of the grammar stay in the query, because Prometheus reports them better.

    :raises NotDecomposable: the query combines series of different clusters.
    """
    try:
        reader = _Reader(query)
    except UnreadableQuery as error:
        raise NotDecomposable(str(error)) from None
    if reason := reader.reason():
        raise NotDecomposable(reason)
    return reader.for_one_cluster()


class _Reader:
    """The words of a query, and the pairs of its parentheses."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._tokens = tokens = tokens_of(query)
        #: Position of the closing bracket, by position of the opening one.
        self._ends: dict[int, int] = {}
        #: Positions within braces.
        self._selecting: set[int] = set()
        opened: list[int] = []
        for at, token in enumerate(tokens):
            if token.kind is not TokenKind.SIGN:
                continue
            if token.text in "([{":
                opened.append(at)
            elif token.text in ")]}" and opened:
                start = opened.pop()
                self._ends[start] = at
                if token.text == "}":
                    self._selecting.update(range(start, at))

    def reason(self) -> str:
        for at, token in enumerate(self._tokens):
            if at in self._selecting:
                if token.text == CLUSTER and self._sign(at + 1) in _COMPARISONS:
                    return (
                        "series in a cluster do not have the label cluster; the "
                        "parameter clusters selects clusters"
                    )
            elif token.kind is TokenKind.NAME and (reason := self._of_name(at)):
                return reason
        return ""

    def for_one_cluster(self) -> str:
        """Return the query with the names that labels have in a single cluster."""
        parts: list[str] = []
        position = 0
        for start, end, text in self._replacements():
            parts += (self._query[position:start], text)
            position = end
        return "".join((*parts, self._query[position:]))

    def _replacements(self) -> Iterator[tuple[int, int, str]]:
        """Yield the start, the end and the new text of each piece to replace."""
        for at, token in enumerate(self._tokens):
            if at in self._selecting:
                if is_about_cluster(token.text) and self._sign(at + 1) in _COMPARISONS:
                    yield token.start, token.end, _written(token, own_name(token.text))
            elif self._word(at) in _BEFORE_LABELS and self._sign(at + 1) == "(":
                end = self._ends.get(at + 1)
                labels = self._tokens[at + 2 : end]
                if end is None or not any(is_about_cluster(one.text) for one in labels):
                    continue
                named = [
                    _written(one, own_name(one.text))
                    for one in labels
                    if one.kind is not TokenKind.SIGN and own_name(one.text)
                ]
                yield labels[0].start, self._tokens[end].start, ", ".join(named)

    def _of_name(self, at: int) -> str:
        name = self._tokens[at].text.lower()
        if name in _AGGREGATIONS and (
            self._sign(at + 1) == "(" or self._word(at + 1) in ("by", "without")
        ):
            return self._of_aggregation(at, name) or self._of_writer(at, name)
        if self._sign(at + 1) != "(" or name in _KEYWORDS:
            return ""
        if name in ("on", "ignoring"):
            return self._of_matching(name, self._labels(at + 1))
        if name in ("by", "without"):
            return ""
        return self._of_function(at, name) or self._of_writer(at, name)

    def _of_aggregation(self, at: int, name: str) -> str:
        modifier = at + 1
        if self._sign(modifier) == "(":
            modifier = self._ends.get(modifier, len(self._tokens)) + 1
        mode = self._word(modifier)
        if mode not in ("by", "without"):
            return (
                f"{name} combines series of all clusters; write {name} by (cluster) "
                "(…) for one result of each cluster"
            )
        labels = self._labels(modifier + 1)
        if mode == "by" and CLUSTER not in labels:
            return (
                f"{name} by (…) combines series of all clusters; add cluster to its "
                "labels"
            )
        if mode == "without" and CLUSTER in labels:
            return f"{name} without (cluster) combines series of all clusters"
        return ""

    def _of_matching(self, name: str, labels: set[str]) -> str:
        if (name == "on") is (CLUSTER in labels):
            return ""
        remedy = "add cluster to" if name == "on" else "remove cluster from"
        return f"{name} (…) matches series of different clusters; {remedy} its labels"

    def _of_function(self, at: int, name: str) -> str:
        if name in _NOT_OF_ONE:
            return f"{name}: {_NOT_OF_ONE[name]}"
        if name in _OF_TIME:
            empty = self._ends.get(at + 1) == at + 2
            return f"{name}(): {_NOT_OF_ONE['vector']}" if empty else ""
        if name not in _OF_ONE_SERIES:
            return f"kas does not know the function {name[:50]}"
        return ""

    def _of_writer(self, at: int, name: str) -> str:
        if name not in _WRITERS:
            return ""
        start = at + 1
        while start < len(self._tokens) and start not in self._ends:
            start += 1
        if name == "count_values" and self._word(at + 1):
            # Skip the labels of by (…) before the arguments.
            start = self._ends.get(at + 2, at) + 1
        inside = range(start, self._ends.get(start, start))
        for position in inside:
            token = self._tokens[position]
            if (
                token.kind is TokenKind.STRING
                and is_about_cluster(token.text)
                and position not in self._selecting
            ):
                return f"{name} must not use the label {token.text[:50]}"
        return ""

    def _labels(self, at: int) -> set[str]:
        """Return the labels in the parentheses at a position."""
        end = self._ends.get(at, at)
        return {
            one.text
            for one in self._tokens[at + 1 : end]
            if one.kind in (TokenKind.NAME, TokenKind.STRING)
        }

    def _sign(self, at: int) -> str:
        """Return the sign at a position; empty if there is none."""
        if at < len(self._tokens) and self._tokens[at].kind is TokenKind.SIGN:
            return self._tokens[at].text
        return ""

    def _word(self, at: int) -> str:
        """Return the name at a position in lower case; empty if there is none."""
        if at < len(self._tokens) and self._tokens[at].kind is TokenKind.NAME:
            return self._tokens[at].text.lower()
        return ""


def _written(token: PromqlToken, name: str) -> str:
    """Return the name of a label in the form of a token."""
    return json.dumps(name) if token.kind is TokenKind.STRING else name
