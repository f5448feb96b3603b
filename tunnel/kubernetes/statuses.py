"""Errors as a ``Status``, the object that clients of Kubernetes show."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["STATUS_REASONS", "status_object"]

#: Reasons by HTTP status.  Source: k8s.io/apimachinery, metav1.StatusReason
STATUS_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def status_object(code: int, message: str, reason: str = "") -> dict[str, Any]:
    """
    Return an error.

    :param code: the HTTP status.
    :param reason: empty for the usual reason of *code*.
    """
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or STATUS_REASONS.get(code, ""),
        "code": code,
    }
