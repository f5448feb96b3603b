"""The part of Prometheus' API that users may request; everything else is refused."""

from __future__ import annotations

import re
from typing import Final

import attrs

__all__ = ["MAX_ANSWER", "Endpoint", "endpoint_of"]

#: Maximum bytes of a response: a hundred panels with 11,000 points each need less, and
#: a query that returns more would fill the browser.
MAX_ANSWER: Final = 16 * 1024 * 1024

_LABEL: Final = "[A-Za-z_][A-Za-z0-9_]{0,199}"


@attrs.frozen
class Endpoint:
    """
    Path, or pattern of paths, of Prometheus' API.

    :ivar name: the name in metrics, which all paths of a pattern share.
    :ivar form: whether Prometheus also accepts POST with a form.  If so, agentk sends
        POST, because a query may be too long for a URL.
    :ivar fleet: whether kas can merge the responses of several clusters.
    """

    name: str
    form: bool = False
    fleet: bool = False


#: Absent are ``/api/v1/admin``, ``/-/``, ``write`` and ``otlp``, which change data, and
#: ``read`` and ``/federate``, whose responses have no limit.
_ENDPOINTS: Final = {
    "query": Endpoint("query", form=True, fleet=True),
    "query_range": Endpoint("query_range", form=True, fleet=True),
    "query_exemplars": Endpoint("query_exemplars", form=True),
    "series": Endpoint("series", form=True, fleet=True),
    "labels": Endpoint("labels", form=True, fleet=True),
    "format_query": Endpoint("format_query", form=True),
    "metadata": Endpoint("metadata"),
    "targets": Endpoint("targets"),
    "rules": Endpoint("rules"),
    "alerts": Endpoint("alerts"),
    "status/buildinfo": Endpoint("buildinfo"),
}

_VALUES: Final = Endpoint("label_values", fleet=True)
_PATH: Final = re.compile(rf"/api/v1/(?:label/({_LABEL})/values|([a-z/_]+))")


def endpoint_of(path: str) -> tuple[Endpoint, str] | None:
    """
    Return the endpoint of a path, and the label in it, which is empty for most; None
    if users may not request the path.

    :param path: as the client sent it; an escaped path is not in the list.
    """
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    if found[1]:
        return _VALUES, found[1]
    endpoint = _ENDPOINTS.get(found[2])
    return None if endpoint is None else (endpoint, "")
