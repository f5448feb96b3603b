"""
Path and parameters of a request, each in one place only.

Implementations of Prometheus' API differ in whether the URL or the form decides if both
contain a parameter.  So kas refuses such a request, and sends all parameters of a query
in one form.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode

import attrs

from modules.prometheus.server.envelope import QuestionRefused
from modules.prometheus.wire.endpoints import Endpoint, endpoint_of

__all__ = ["MAX_BODY", "PromQuestion", "read_question"]

#: Maximum bytes of a form: long regular expressions have tens of KiB.
MAX_BODY: Final = 1024 * 1024

#: Maximum number of parameters.
MAX_PARAMETERS: Final = 1000

#: Parameters without brackets that may have several values, of Thanos and
#: VictoriaMetrics.
_REPEATED: Final = frozenset(("replicaLabels", "extra_label"))

_FORM: Final = "application/x-www-form-urlencoded"


@attrs.frozen
class PromQuestion:
    """
    A request of Prometheus' API.

    :ivar label: the label in the path of ``label_values``.
    :ivar parameters: names and values, decoded.
    """

    endpoint: Endpoint
    path: str
    label: str
    parameters: tuple[tuple[str, str], ...]

    @property
    def form(self) -> str:
        """Return the parameters as a form."""
        return urlencode(self.parameters)

    def value(self, name: str) -> str:
        """Return the value of a parameter; empty if it is missing."""
        return next((value for key, value in self.parameters if key == name), "")


def read_question(
    method: str, path: str, query: str, content_type: str, body: bytes
) -> PromQuestion:
    """
    Read a request.

    :raises QuestionRefused: kas does not forward the request.
    """
    found = endpoint_of(path)
    if found is None:
        raise QuestionRefused(
            404,
            "kas forwards only requests that read: query, query_range, series, labels, "
            "label/NAME/values, metadata, targets, rules, alerts, query_exemplars, "
            "format_query and status/buildinfo, below /api/v1",
        )
    endpoint, label = found
    if method not in (("GET", "POST") if endpoint.form else ("GET",)):
        allowed = "GET and POST" if endpoint.form else "GET"
        raise QuestionRefused(405, f"{path} permits {allowed}, but not {method[:20]}")
    in_url = _parameters(query)
    in_form: list[tuple[str, str]] = []
    if method == "POST":
        kind = content_type.partition(";")[0].strip().lower()
        if body and kind != _FORM:
            raise QuestionRefused(415, f"the body of a POST must be {_FORM}")
        in_form = _parameters(body.decode("latin-1"))
    elif body:
        raise QuestionRefused(400, "a GET must not have a body")
    both = {name for name, _ in in_url} & {name for name, _ in in_form}
    if both:
        raise QuestionRefused(
            400,
            f"the parameter {min(both)[:50]!r} is in the URL and in the body; send it "
            "once",
        )
    parameters = (*in_url, *in_form)
    seen: set[str] = set()
    for name, _ in parameters:
        if name in seen and not name.endswith("[]") and name not in _REPEATED:
            raise QuestionRefused(
                400, f"the parameter {name[:50]!r} is given more than once"
            )
        seen.add(name)
    return PromQuestion(endpoint, path, label, parameters)


def _parameters(text: str) -> list[tuple[str, str]]:
    # Some servers separate parameters by semicolons, too.
    if ";" in text:
        raise QuestionRefused(400, "write a semicolon in a parameter as %3B")
    try:
        return parse_qsl(
            text,
            keep_blank_values=True,
            encoding="utf-8",
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError:
        raise QuestionRefused(
            400,
            f"the parameters must be UTF-8, percent-encoded, and at most "
            f"{MAX_PARAMETERS}",
        ) from None
