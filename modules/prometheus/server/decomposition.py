"""
Whether a query gives the same for each cluster alone and for all of them together.

The model: each series of a cluster has the label ``cluster``, and a query is evaluated
over the series of all clusters.  It decomposes if no step of its evaluation combines
series of different clusters.  Then the answer is the union of the answers of all
clusters, each with its label, and no cluster needs the label itself:
``sum by (cluster, job) (up)`` in one cluster is ``sum by (job) (up)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from modules.prometheus.server.promql_tokens import (
    PromqlToken,
    TokenKind,
    UnreadableQuery,
    tokens_of,
)

__all__ = ["CLUSTER", "why_not_decomposable"]

#: Label that each series of a merged answer has.
CLUSTER: Final = "cluster"

_AGGREGATIONS: Final = frozenset(
    "avg bottomk count count_values group limit_ratio limitk max min quantile stddev "
    "stdvar sum topk".split()
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

#: Functions that write a label whose name is an argument.
_WRITERS: Final = frozenset(("label_replace", "label_join", "count_values"))

_COMPARISONS: Final = frozenset(("=", "!=", "=~", "!~"))


def why_not_decomposable(query: str) -> str:
    """
    Return why a query cannot be answered cluster by cluster; empty if it can.

    Errors of the grammar are no reason, because Prometheus reports them better.
    """
    try:
        return _Reader(tokens_of(query)).reason()
    except UnreadableQuery as error:
        return str(error)


class _Reader:
    """The words of a query, and the pairs of its parentheses."""

    def __init__(self, tokens: Sequence[PromqlToken]) -> None:
        self._tokens = tokens
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
                token == PromqlToken(TokenKind.STRING, CLUSTER)
                and position not in self._selecting
            ):
                return f"{name} must not write the label cluster"
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
