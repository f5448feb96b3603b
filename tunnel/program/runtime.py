"""The objects of a process that most of its parts use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from prometheus_client import CollectorRegistry

from tunnel.hosting.events import EventBus
from tunnel.program.tracing import Tracer
from tunnel.session.keepalive import Keepalive
from tunnel.util.flusher import Flusher

__all__ = ["Runtime"]


@attrs.frozen(kw_only=True, eq=False)
class Runtime:
    """
    Runtime of one process.

    :ivar reactor: also the clock for durations.
    :ivar now: the time of day, in seconds since 1970.
    :ivar random: between 0 and 1, for jitter.
    :ivar environ: variables of the environment, which may name a proxy.
    :ivar instance_id: identifies the process to its peers.
    """

    reactor: Any
    now: Callable[[], float]
    random: Callable[[], float]
    environ: Mapping[str, str] = attrs.field(repr=False)
    instance_id: bytes
    flusher: Flusher
    keepalive: Keepalive
    bus: EventBus = attrs.Factory(EventBus)
    metrics: CollectorRegistry = attrs.Factory(CollectorRegistry)
    tracer: Tracer | None = None
