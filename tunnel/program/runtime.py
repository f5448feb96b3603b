"""The objects of a process that most of its parts use."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from prometheus_client import CollectorRegistry

from tunnel.config import Tracing
from tunnel.hosting.events import EventBus
from tunnel.program.metrics_registry import MetricsRegistry
from tunnel.program.tracing import Tracer
from tunnel.session.keepalive import Keepalive
from tunnel.util.flusher import Flusher

__all__ = ["Runtime"]


@attrs.frozen(kw_only=True, eq=False)
class Runtime:
    """
    The runtime of one process.

    :ivar reactor: the reactor, which is also the clock for durations.
    :ivar now: returns the time of day, in seconds since 1970.
    :ivar random: returns a number between 0 and 1, for jitter.
    :ivar environ: environment variables, which may name a proxy.
    :ivar instance_id: identifies the process to its peers.
    """

    reactor: Any
    now: Callable[[], float] = time.time
    random: Callable[[], float] = secrets.SystemRandom().random
    environ: Mapping[str, str] = attrs.field(default=os.environ, repr=False)
    instance_id: bytes = attrs.Factory(lambda: secrets.token_bytes(16))
    flusher: Flusher = attrs.Factory(
        lambda self: Flusher(self.reactor), takes_self=True
    )
    keepalive: Keepalive = attrs.Factory(
        lambda self: Keepalive(self.reactor), takes_self=True
    )
    bus: EventBus = attrs.Factory(EventBus)
    metrics: CollectorRegistry = attrs.Factory(MetricsRegistry)
    tracer: Tracer | None = None

    def traced(self, settings: Tracing | None, program: str, ratio: float) -> Runtime:
        """
        Return a runtime with a tracer; without *settings*, the same runtime.

        :param ratio: the fraction of root spans that begin a trace in this process.
        """
        if settings is None:
            return self
        me = self.instance_id.hex()
        tracer = Tracer(settings, program, me, ratio, self.random)
        self.metrics.register(tracer)
        return attrs.evolve(self, tracer=tracer)
