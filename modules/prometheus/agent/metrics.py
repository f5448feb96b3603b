"""Metrics of questions in agentk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tunnel.toolkit.peer_turns import PeerTurns

__all__ = ["QuestionMetrics"]


class QuestionMetrics(Collector):
    """Numbers of questions, by result."""

    def __init__(self, turns: PeerTurns[str]) -> None:
        self._turns = turns
        #: ``answered``, ``refused`` (rights and limits) and ``failed``.
        self.results: Counter[str] = Counter()
        self.bytes = 0
        #: Whether agentk knows which Service to ask; None before the first search.
        self.found: bool | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        questions = CounterMetricFamily(
            "agentk_prometheus_questions",
            "Questions to the Prometheus of the cluster, by result",
            labels=("result",),
        )
        for result in ("answered", "refused", "failed"):
            questions.add_metric((result,), self.results[result])
        yield questions
        yield GaugeMetricFamily(
            "agentk_prometheus_questions_running",
            "Questions that Prometheus evaluates now",
            value=self._turns.running,
        )
        yield GaugeMetricFamily(
            "agentk_prometheus_questions_waiting",
            "Questions that wait for their turn",
            value=self._turns.waiting,
        )
        yield CounterMetricFamily(
            "agentk_prometheus_response_bytes",
            "Bytes of Prometheus' responses",
            value=self.bytes,
        )
        if self.found is not None:
            yield GaugeMetricFamily(
                "agentk_prometheus_found",
                "1 if agentk knows which Service to ask, 0 if users get an error",
                value=int(self.found),
            )
