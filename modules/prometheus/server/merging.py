"""Parts of the answers of several clusters, merged without parsing their samples."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

import msgspec

from modules.prometheus.server.cluster_label import (
    CLUSTER,
    labels_in_answer,
    name_in_answer,
)

__all__ = [
    "AnswerMerger",
    "ClustersMerger",
    "Malformed",
    "PromAnswer",
    "ResultMerger",
    "SeriesMerger",
    "TextsMerger",
    "parse_answer",
]

_T = TypeVar("_T")


class PromAnswer(msgspec.Struct, rename={"error_type": "errorType"}):
    """An answer of Prometheus whose data is not parsed yet."""

    status: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    infos: list[str] | None = None


class _Result(msgspec.Struct, rename={"kind": "resultType"}):
    kind: str = ""
    result: msgspec.Raw = msgspec.Raw(b"null")


class _Samples(msgspec.Struct, omit_defaults=True):
    """One series of a result; its samples stay as they are."""

    metric: dict[str, str]
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    values: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    histogram: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    histograms: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_ANSWERS: Final = msgspec.json.Decoder(PromAnswer)
_RESULTS: Final = msgspec.json.Decoder(_Result)
_SERIES: Final = msgspec.json.Decoder(list[_Samples])
_LABEL_SETS: Final = msgspec.json.Decoder(list[dict[str, str]])
_TEXTS: Final = msgspec.json.Decoder(list[str])


class Malformed(Exception):
    """Error for an answer that is not what Prometheus writes."""


def parse_answer(body: bytes) -> PromAnswer:
    """
    Return an answer.

    :raises Malformed: it is not JSON as Prometheus writes it.
    """
    try:
        return _ANSWERS.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise Malformed("its response is not an answer of Prometheus") from None


class AnswerMerger(Protocol):
    """Data of answers of clusters, added one after the other."""

    def add(self, cluster: str, data: bytes | msgspec.Raw) -> None:
        """
        Add the data of a cluster, completely or not at all.

        :raises Malformed: it is not what Prometheus writes.
        """

    def merged(self) -> bytes:
        """Return the data of all clusters as JSON."""


class ResultMerger:
    """
    Results of a query: each series with its cluster.

    A number does not depend on any series, because `why_not_decomposable` permits no
    function that makes a number of series; so all clusters answer the same.
    """

    def __init__(self) -> None:
        self._kind = ""
        self._series: list[_Samples] = []
        self._number = b""

    def add(self, cluster: str, data: bytes | msgspec.Raw) -> None:
        """See `AnswerMerger`."""
        result = _decoded(_RESULTS, data)
        if self._kind not in ("", result.kind):
            raise Malformed(f"its result is a {result.kind[:20]}, not a {self._kind}")
        if result.kind in ("scalar", "string"):
            self._number = self._number or bytes(data)
        else:
            series = _decoded(_SERIES, result.result)
            for one in series:
                one.metric = labels_in_answer(one.metric, cluster)
            self._series += series
        self._kind = result.kind

    def merged(self) -> bytes:
        """See `AnswerMerger`."""
        if self._number:
            return self._number
        return msgspec.json.encode({"resultType": self._kind, "result": self._series})


class SeriesMerger:
    """
    Label sets of series, each with its cluster.

    :param limit: maximum number; 0 for any number.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: list[dict[str, str]] = []

    def add(self, cluster: str, data: bytes | msgspec.Raw) -> None:
        """See `AnswerMerger`."""
        sets = _decoded(_LABEL_SETS, data)
        self._found += [labels_in_answer(one, cluster) for one in sets]

    def merged(self) -> bytes:
        """See `AnswerMerger`."""
        return msgspec.json.encode(self._found[: self._limit or None])


class TextsMerger:
    """
    Names or values of labels: sorted, and each once.

    :param are_names: whether the texts are names of labels.
    """

    def __init__(self, limit: int, are_names: bool) -> None:
        self._limit = limit
        self._are_names = are_names
        self._found = {CLUSTER} if are_names else set()

    def add(self, cluster: str, data: bytes | msgspec.Raw) -> None:
        """See `AnswerMerger`."""
        found = _decoded(_TEXTS, data)
        self._found.update(map(name_in_answer, found) if self._are_names else found)

    def merged(self) -> bytes:
        """See `AnswerMerger`."""
        return msgspec.json.encode(sorted(self._found)[: self._limit or None])


class ClustersMerger:
    """Names of the clusters that have any label: the values of ``cluster``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: set[str] = set()

    def add(self, cluster: str, data: bytes | msgspec.Raw) -> None:
        """See `AnswerMerger`."""
        if _decoded(_TEXTS, data):
            self._found.add(cluster)

    def merged(self) -> bytes:
        """See `AnswerMerger`."""
        return msgspec.json.encode(sorted(self._found)[: self._limit or None])


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes | msgspec.Raw) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise Malformed("its response is not an answer of Prometheus") from None
