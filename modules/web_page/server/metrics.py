"""Metrics of the page, which are read at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from modules.web_page.server.sessions import UserSession

__all__ = ["PageMetrics"]


class PageMetrics(Collector):
    """
    Collector of the module's metrics.

    :param sessions: returns the sessions at all kas.
    """

    def __init__(self, sessions: Callable[[], Collection[UserSession]]) -> None:
        self._sessions = sessions
        #: Sign-ins by their method and result: ``accepted``, ``refused`` or ``failed``.
        self.sign_ins: Counter[tuple[str, str]] = Counter()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield GaugeMetricFamily(
            "kas_web_page_user_sessions",
            "Sessions of users of the page, at all kas.",
            len(self._sessions()),
        )
        sign_ins = CounterMetricFamily(
            "kas_web_page_sign_ins",
            "Sign-ins to the page, by method and result.",
            labels=["method", "result"],
        )
        for labels, count in sorted(self.sign_ins.items()):
            sign_ins.add_metric(list(labels), count)
        yield sign_ins
