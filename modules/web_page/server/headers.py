"""Header fields that protect the page in a browser."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["CONTENT_SECURITY_POLICY", "protect"]

#: Only files of kas itself run, nothing is inline, and no other page shows this one.
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        # The page makes no policy, so text can never become markup or a script.
        "trusted-types 'none'",
    )
)

_FIELDS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    # Paths contain names of clusters and objects.  With no-referrer, browsers would
    # also hide the origin of a form from kas.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": (
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
    ),
}


def protect(request: Any, cache: str = "no-store") -> None:
    """
    Set these fields.

    :param cache: value of ``Cache-Control``.
    """
    for name, value in _FIELDS.items():
        request.setHeader(name, value)
    request.setHeader("cache-control", cache)
