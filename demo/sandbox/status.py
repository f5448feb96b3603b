"""Errors as Kubernetes has them: ``Status`` objects."""

from __future__ import annotations

from typing import Any

__all__ = ["ApiError", "failure"]

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
}


class ApiError(Exception):
    """What a client asked for cannot be; becomes the answer."""

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason or _REASONS.get(code, "")


def failure(code: int, message: str, reason: str = "") -> dict[str, Any]:
    """A ``Status`` that tells of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or _REASONS.get(code, ""),
        "code": code,
    }
