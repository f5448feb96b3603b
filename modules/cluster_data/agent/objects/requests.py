"""A request to the API server, as far as the cache answers it."""

from __future__ import annotations

import re
from typing import Final

import attrs

from modules.cluster_data.agent.objects.forms import Form, form_of
from modules.cluster_data.agent.objects.selection import Selection
from tunnel.kubernetes import (
    MAX_SELECTOR,
    RequestInfo,
    query_flag,
    query_value,
    request_info,
)

__all__ = ["ObjectRequest", "ReadRefused", "is_discovery", "read_request"]

#: Paths that describe the API server and its kinds; agentk forwards them.
_DISCOVERY: Final = re.compile(r"/(?:api|apis)/?|/api/[^/]+/?|/apis/[^/]+(?:/[^/]+)?/?")
_DESCRIPTION: Final = re.compile(r"/version/?|/openapi/v[23](?:/.*)?")

#: Text that names the endpoint for everything else.
_ELSEWHERE: Final = (
    "; use the ordinary endpoint, whose address is the same without '/cache'"
)


class ReadRefused(Exception):
    """
    Error for a request that the cache does not answer.

    :ivar code: the HTTP status.
    :ivar reason: the reason in the ``Status``; empty for the usual one.
    """

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


@attrs.frozen
class ObjectRequest:
    """
    A get, list or watch of objects.

    :ivar selection: None if only the API server can evaluate the selectors.
    :ivar version: the ``resourceVersion`` of the request.
    :ivar seconds: the duration of a watch; 0 if the client did not choose one.
    """

    info: RequestInfo
    form: Form
    selection: Selection | None
    version: str
    is_exact: bool
    include: str
    bookmarks: bool
    initial_events: bool | None
    seconds: int

    @property
    def api_version(self) -> str:
        """Return the group and version, such as ``apps/v1``."""
        info = self.info
        return f"{info.group}/{info.version}" if info.group else info.version


def is_discovery(target: str) -> bool:
    """Return whether a request is for a description of the API server or its kinds."""
    info = request_info(b"GET", target.encode("latin-1", "replace"))
    if info.is_resource:
        return False
    return any(one.fullmatch(info.path) for one in (_DISCOVERY, _DESCRIPTION))


def read_request(target: str, accept: str) -> ObjectRequest:
    """
    Parse the target of a GET request.

    :raises ReadRefused: the cache does not answer the request.
    """
    raw = target.encode("latin-1", "replace")
    info = request_info(b"GET", raw)
    query = raw.partition(b"?")[2]
    if not info.is_resource:
        raise ReadRefused(404, f"the cache has no path {info.path[:200]}{_ELSEWHERE}")
    if info.subresource or len(info.parts) > 2:
        what = info.subresource or info.verb
        raise ReadRefused(
            405, f"the cache has whole objects, but not their {what}{_ELSEWHERE}"
        )
    if info.verb not in ("get", "list", "watch"):
        raise ReadRefused(405, f"the cache permits get, list and watch{_ELSEWHERE}")
    if (info.group, info.resource) == ("", "secrets"):
        raise ReadRefused(403, f"the cache never contains Secrets{_ELSEWHERE}")
    form = form_of(accept)
    if form is None:
        raise ReadRefused(406, "the cache responds with application/json only")
    if _text(query, b"continue"):
        # The cache returns lists as a whole, so this is a position of the API server.
        raise ReadRefused(
            410, "the cache does not continue lists of the API server", "Expired"
        )
    has_name = len(info.parts) > 1
    try:
        selection = Selection.of(
            info.namespace,
            info.parts[1] if has_name else "",
            _text(query, b"labelSelector"),
            _text(query, b"fieldSelector"),
        )
    except ValueError:
        # The API server knows more selectors, and explains invalid ones.
        selection = None
    if selection is None and info.verb == "watch":
        raise ReadRefused(
            400,
            "the cache watches with the field selectors metadata.name and "
            "metadata.namespace, and with label selectors of at most "
            f"{MAX_SELECTOR} characters without '<' and '>'{_ELSEWHERE}",
        )
    initial: bool | None = None
    if query_value(query, b"sendInitialEvents") is not None:
        initial = query_flag(query, b"sendInitialEvents")
    seconds = _text(query, b"timeoutSeconds")
    return ObjectRequest(
        info,
        form,
        selection,
        _text(query, b"resourceVersion"),
        _text(query, b"resourceVersionMatch") == "Exact",
        _text(query, b"includeObject"),
        query_flag(query, b"allowWatchBookmarks"),
        initial,
        int(seconds) if re.fullmatch("[0-9]{1,9}", seconds) else 0,
    )


def _text(query: bytes, name: bytes) -> str:
    return (query_value(query, name) or b"").decode("utf-8", "replace")
