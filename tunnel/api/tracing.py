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

    #: A received request.
    SERVER = "server"
    #: A sent request.
    CLIENT = "client"
    INTERNAL = "internal"


class ISpan(Interface):
    """A span of OpenTelemetry: the work of this program for one request."""

    traceparent: str = Attribute(
        "Value of the header ``traceparent`` for requests that belong to the span."
    )

    def set(name: str, value: str | int | float | bool) -> None:
        """Set an attribute of the span, by OpenTelemetry's name; never a secret."""

    def rename(name: str) -> None:
        """Give the span another name."""

    def end(problem: str = "") -> None:
        """
        End the span; repeating it does nothing.

        :param problem: the reason of a failure; empty after a success.
        """


class ITracer(Interface):
    """Factory of spans."""

    def begin(
        name: str,
        kind: SpanKind,
        parent: str | None = None,
    ) -> ISpan | None:
        """
        Begin a span now; return None if the request is not traced.

        :param name: a name of low cardinality, such as the method of a call, not its
            path.
        :param parent: the caller's ``traceparent``; an invalid value is ignored.
        """
