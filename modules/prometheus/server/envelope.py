"""Errors as Prometheus writes them, which its clients show."""

from __future__ import annotations

import json
from typing import Final

from tunnel.errors import CallError, Status

__all__ = ["JSON", "QuestionRefused", "envelope", "refused"]

JSON: Final = "application/json"

#: Types of Prometheus' errors, by HTTP status.
_TYPES: Final = {
    400: "bad_data",
    404: "not_found",
    405: "bad_data",
    413: "bad_data",
    415: "bad_data",
    422: "execution",
    500: "internal",
    503: "unavailable",
    504: "timeout",
    429: "unavailable",
}

#: HTTP status of an error of a call; 500 for others.
_CODES: Final = {
    Status.INVALID_ARGUMENT: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.OUT_OF_RANGE: 422,
    Status.FAILED_PRECONDITION: 503,
    Status.UNAVAILABLE: 503,
    Status.UNIMPLEMENTED: 503,
    Status.DEADLINE_EXCEEDED: 504,
}


class QuestionRefused(Exception):
    """Error for a request that kas does not forward, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def envelope(status: int, message: str) -> bytes:
    """Return the body of an error."""
    # Prometheus has no type for a missing right: the query cannot be executed.
    kind = _TYPES.get(status, "execution")
    said = {"status": "error", "errorType": kind, "error": message}
    return json.dumps(said).encode() + b"\n"


def refused(error: CallError) -> QuestionRefused:
    """Convert the error of a call to an agent to an error for the HTTP client."""
    message = error.message
    if error.status is Status.UNIMPLEMENTED:
        message = (
            "the agent does not have the module prometheus; enable modules.prometheus "
            "in the configuration of agentk, or update agentk"
        )
    return QuestionRefused(_CODES.get(error.status, 500), message)
