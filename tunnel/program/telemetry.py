"""Traces and failures as parts of a program."""

from __future__ import annotations

from functools import partial

from tunnel.config import Sentry
from tunnel.program.parts import Part, Steps
from tunnel.program.runtime import Runtime
from tunnel.program.sentry import ErrorReports

__all__ = ["telemetry_parts"]


def telemetry_parts(settings: Sentry, program: str, runtime: Runtime) -> list[Part]:
    """Return the parts that start before all others and stop after them."""
    reactor, tracer = runtime.reactor, runtime.tracer
    errors = ErrorReports(settings, program, reactor)
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
