"""Traces and failures as parts of a program."""

from __future__ import annotations

from functools import partial
from typing import Any

from tunnel.program.parts import Part, Steps
from tunnel.program.sentry import ErrorReports
from tunnel.program.tracing import Tracer

__all__ = ["telemetry_parts"]


def telemetry_parts(
    errors: ErrorReports, tracer: Tracer | None, reactor: Any
) -> list[Part]:
    """Return the parts that start before all others and stop after them."""
    parts: list[Part] = [
        Steps("error reports", start=errors.start, stop=partial(errors.stop, reactor))
    ]
    if tracer is not None:
        parts.append(
            Steps(
                "traces",
                start=partial(tracer.start, reactor),
                stop=partial(tracer.stop, reactor),
            )
        )
    return parts
