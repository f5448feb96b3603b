"""A tracer that records its spans, for tests."""

from __future__ import annotations

import attrs
from zope.interface import implementer

from tunnel.api import ISpan, ITracer, SpanKind
from tunnel.toolkit.traces import trace_id_of

__all__ = ["FakeSpan", "FakeTracer"]


@implementer(ISpan)
@attrs.define(eq=False)
class FakeSpan:
    """One span, with its name, attributes and problem."""

    name: str
    kind: SpanKind
    parent: str | None
    traceparent: str
    attributes: dict[str, str | int | float | bool] = attrs.Factory(dict)
    ended: bool = False
    #: Reason of the failure; empty after a success.
    problem: str = ""

    def set(self, name: str, value: str | int | float | bool) -> None:
        """See `tunnel.api.ISpan`."""
        self.attributes[name] = value

    def rename(self, name: str) -> None:
        """See `tunnel.api.ISpan`."""
        self.name = name

    def end(self, problem: str = "") -> None:
        """See `tunnel.api.ISpan`."""
        if not self.ended:
            self.ended, self.problem = True, problem


@implementer(ITracer)
@attrs.define(eq=False)
class FakeTracer:
    """A tracer that records all spans, or only spans of existing traces."""

    #: Whether a trace may begin with a span of this tracer.
    begins: bool = True
    #: Every span, in the order of their starts.
    spans: list[FakeSpan] = attrs.Factory(list)

    def begin(
        self,
        name: str,
        kind: SpanKind,
        parent: str | None = None,
    ) -> FakeSpan | None:
        """See `tunnel.api.ITracer`."""
        number = len(self.spans) + 1
        trace_id = trace_id_of(parent)
        if trace_id is None:
            if not self.begins:
                return None
            trace_id = f"{number:032x}"
        traceparent = f"00-{trace_id}-{number:016x}-01"
        span = FakeSpan(name, kind, parent, traceparent)
        self.spans.append(span)
        return span
