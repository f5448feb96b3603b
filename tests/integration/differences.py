"""
How an answer through kas may differ from the API server's own: this, and nothing else.

Each entry has its reason.  A test that needs another one has found a fault, or a
decision that belongs into the documentation first.
"""

from __future__ import annotations

from tests.integration.rawhttp import Answer
from tests.integration.transcript import mask

#: Fields of an answer that are not compared.
FIELDS = {
    "via": "both hops name themselves, as RFC 9110 asks of every intermediary",
    "date": "the time of the answer",
    "audit-id": "a new number for each request",
}

#: May be there in addition: HTTP/1.0 and refused upgrades end the connection with kas.
#: Who asked for an upgrade may have sent anything behind it (CVE-2018-1002105).
CLOSE = ("Connection", "close")

#: Where the API server ends an answer by closing, kas can say where it ends.
FRAMING = {"close": "chunked"}

#: Fields whose order among the others is not kept.
UNORDERED = {
    "content-length": "written anew, because framing belongs to one hop",
    "transfer-encoding": "the same",
    "connection": "the same",
    "trailer": "the same",
}


def comparable(answer: Answer, namespace: str = "") -> dict[str, object]:
    """*answer* without what may differ; equal for both ways."""
    ordered: list[tuple[str, str]] = []
    unordered: list[tuple[str, str]] = []
    for name, value in answer.fields:
        lower = name.lower()
        if lower in FIELDS or (name, value) == CLOSE:
            continue
        (unordered if lower in UNORDERED else ordered).append((name, value))
    framing = FRAMING.get(answer.framing, answer.framing)
    if framing == "chunked":
        unordered = [
            one for one in unordered if one != ("Transfer-Encoding", "chunked")
        ]
    # Not the version: kas says HTTP/1.1 to HTTP/1.0, too, as RFC 9110 (6.2) asks.
    # Not the sizes of chunks: they are nobody's promise.
    return {
        "status": (answer.status, answer.reason),
        "framing": framing,
        "trailers": answer.trailers,
        "fields": ordered,
        "framing fields": sorted(unordered),
        "body": mask(answer.body.decode("latin-1"), namespace),
    }
