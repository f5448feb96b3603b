"""``/liveness``, ``/readiness``, ``/metrics`` and ``/debug/profile`` of agentk."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from twisted.internet.interfaces import IReactorTime

from agentk.dialer import Dialer
from tunnel.config import Profile
from tunnel.program.profile import Profiler
from tunnel.program.site import Make, Page, Site, exposition, plain


def make_site(
    dialer: Dialer,
    metrics: CollectorRegistry,
    profile: Profile,
    clock: IReactorTime,
    unready: Callable[[], str] = lambda: "",
) -> Site:
    """
    Return the site of agentk's observability listener.

    :param unready: returns why agentk is not ready, apart from the tunnel; empty if it
        is.
    """

    def readiness() -> Page:
        if problem := unready():
            return plain(f"not ready: {problem}", 503)
        # Ready means that the tunnel is established, not only that the process is
        # running.
        if dialer.ready:
            return plain("ready")
        return plain(f"not ready: {dialer.last_problem}", 503)

    pages: dict[str, Make] = {
        "/liveness": lambda: plain("alive"),
        "/readiness": readiness,
        "/metrics": lambda: exposition(metrics),
    }
    if profile.enabled:
        pages["/debug/profile"] = Profiler(clock, profile.duration).page
    return Site(pages, clock)
