"""Spans for OpenTelemetry."""

from __future__ import annotations

from enum import Enum

from zope.interface import Attribute, Interface

__all__ = [
    "ISpan",
    "ITracer",
    "SpanKind",
]


class SpanKind(Enum):
    """Kind of a span, as in OpenTelemetry."""

    #: A request of another, answered here.
    SERVER = "server"
    #: A request to another.
    CLIENT = "client"
    INTERNAL = "internal"


class ISpan(Interface):
    """A span of OpenTelemetry: the work done here for one request."""

    traceparent: str = Attribute(
        "Value of the header ``traceparent`` for requests on its behalf."
    )

    def set(name: str, value: str | int | float | bool) -> None:
        """Say something of it, by OpenTelemetry's name for that; never a secret."""

    def rename(name: str) -> None:
        """Give the span another name."""

    def end(problem: str = "") -> None:
        """
        End the span; repeating it does nothing.

        :param problem: why it failed.
        """


class ITracer(Interface):
    """Makes spans."""

    def begin(
        name: str,
        kind: SpanKind,
        parent: str | None = None,
    ) -> ISpan | None:
        """
        Begin a span now; None: the request is not traced.

        :param name: one of few different names: the method of a call, not its path.
        :param parent: the caller's ``traceparent``; an invalid one is ignored.
        """
