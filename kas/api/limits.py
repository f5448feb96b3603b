"""Limits that apply to clients of the external API."""

from __future__ import annotations

import attrs

from tunnel.http2.limits import Http2Limits
from tunnel.rpc.messages import MAX_MESSAGE

__all__ = ["DEFAULT_LIMITS", "ExternalLimits"]


@attrs.frozen(kw_only=True)
class ExternalLimits(Http2Limits):
    """Limits on connections over HTTP/1.1, in addition to the limits on HTTP/2."""

    #: Maximum number of connections at the same time.  GitLab has one or a few for each
    #: of its processes.
    connections: int = 1000

    #: Maximum seconds until the client has sent its first bytes, which distinguish
    #: HTTP/1.1 from HTTP/2.
    greeting: float = 10.0

    #: Maximum seconds for the head and the body of one HTTP/1.1 request.  4 MiB in that
    #: time are 1.1 Mbit/s.
    request: float = 30.0

    #: Maximum seconds between two HTTP/1.1 requests, between two pieces of one request,
    #: and without progress while the client reads a response.
    idle: float = 60.0

    #: Maximum bytes of a body over HTTP/1.1, which is read into memory as a whole: the
    #: size of a message, and a third more, because bytes are encoded in base64 in JSON.
    body: int = MAX_MESSAGE // 3 * 4 + 64 * 1024


DEFAULT_LIMITS = ExternalLimits()
