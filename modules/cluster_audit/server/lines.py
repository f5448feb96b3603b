"""Events of API servers as lines, with the names of fields in the audit log of kas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from modules.cluster_audit.wire import cluster_audit_pb2 as wire
from tunnel.api import ConnectedAgent
from tunnel.toolkit.texts import clean

__all__ = ["lines_of"]

#: Maximum characters of a text.
MAX_TEXT = 300

_TEXTS = (
    ("user", "user"),
    ("as", "impersonated"),
    ("verb", "verb"),
    ("group", "group"),
    ("version", "version"),
    ("resource", "resource"),
    ("subresource", "subresource"),
    ("namespace", "namespace"),
    ("name", "name"),
    ("path", "path"),
    ("client", "source"),
    ("user_agent", "user_agent"),
)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def lines_of(
    agent: ConnectedAgent, request: wire.StoreRequest, now: float
) -> Iterator[bytes]:
    """
    Yield the lines of a request, each with its line feed.

    :param now: seconds since 1970.
    """
    about = {"agent_id": agent.agent_id, "agent": agent.agent_name}
    for event in request.events:
        line: dict[str, Any] = {
            "v": 1,
            "time": _time(event.time),
            "action": "cluster.request",
            "stage": "begun" if event.stage == "begun" else "ended",
            "id": clean(event.audit_id, MAX_TEXT),
            **about,
        }
        for name, attribute in _TEXTS:
            if text := getattr(event, attribute):
                line[name] = clean(text, MAX_TEXT)
        if event.code:
            line["outcome"] = str(event.code)
        if event.by_agentk:
            line["by_agentk"] = True
        yield _line(line, request.log, event.end)
    if request.left_out:
        left_out = {
            "v": 1,
            "time": _time(round(now * 1e6)),
            "action": "cluster.left_out",
            "stage": "changed",
            **about,
            "count": request.left_out,
        }
        yield _line(left_out, request.log, request.end)


def _line(line: dict[str, Any], log: str, offset: int) -> bytes:
    text = _encode({**line, "log": log, "offset": offset})
    return text.encode("utf-8", "replace") + b"\n"


def _time(microseconds: int) -> str:
    try:
        found = datetime.fromtimestamp(microseconds / 1e6, UTC)
    except (ValueError, OverflowError, OSError):
        found = datetime.fromtimestamp(0, UTC)
    return found.isoformat(timespec="microseconds")
