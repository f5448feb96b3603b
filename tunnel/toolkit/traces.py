"""
Ids of traces, in W3C's Trace Context header ``traceparent``.

If a caller sends an id with a request, that id is used.  For other requests an id is
created only when an error occurs, so that successful requests cost nothing.
"""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from typing import Final

__all__ = [
    "CURRENT",
    "TRACEPARENT",
    "new_trace_id",
    "new_traceparent",
    "trace_id_in",
    "trace_id_of",
    "traceparent_in",
    "with_traceparent",
]

#: The name of the header.
TRACEPARENT: Final = "traceparent"

#: The trace of the call on whose behalf the code runs; None without such a call.
#: Coroutines keep the value of the code that started them.
CURRENT: Final[ContextVar[str | None]] = ContextVar("traceparent", default=None)

#: Maximum number of characters of a value: version 00 has 55, later versions may have
#: more.
_MAX_VALUE: Final = 200

_FIELD: Final = re.compile(rb"\r\ntraceparent:[ \t]*([^\r]*)", re.IGNORECASE)

# https://www.w3.org/TR/trace-context/#traceparent-header-field-values
_VALUE: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    r"(-.*)?"
)


def trace_id_of(value: str | None) -> str | None:
    """Return the id in a value of ``traceparent``; None if it has no valid id."""
    if value is None or len(value) > _MAX_VALUE:
        return None
    found = _VALUE.fullmatch(value.strip(" \t"))
    if found is None or (found[1] == "00" and found[3] is not None):
        return None
    return found[2]


def trace_id_in(fields: bytes) -> str | None:
    """
    Return the id in header lines, each preceded by CR LF; None unless exactly one line
    has a valid id.
    """
    return trace_id_of(traceparent_in(fields))


def traceparent_in(fields: bytes) -> str | None:
    """
    Return the value in header lines; None unless exactly one line has a valid value.
    """
    values = _FIELD.findall(fields)
    if len(values) != 1:
        return None
    value: str = values[0].decode("latin-1").strip(" \t")
    return None if trace_id_of(value) is None else value


def with_traceparent(fields: bytes, value: str) -> bytes:
    """Return *fields* with this value of ``traceparent`` instead of any other."""
    return _FIELD.sub(b"", fields) + b"\r\nTraceparent: " + value.encode("ascii")


def new_trace_id() -> str:
    """Return an id for a request without one."""
    return secrets.token_hex(16)


def new_traceparent(trace_id: str) -> str:
    """Return a header value for a trace that begins here and is not recorded."""
    return f"00-{trace_id}-{secrets.token_hex(8)}-00"
