"""Conversion of drift to a GitLab alert, for the HTTP endpoint of a project."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from modules.gitops.server.reported import AgentDrift
from modules.gitops.wire.control_pb2 import ObjectDrift
from tunnel.toolkit.texts import clean

__all__ = ["alert_of"]

#: Maximum characters of the title and of one line of the description; maximum number of
#: lines of the description; maximum characters of the path and of each value in a line.
MAX_TITLE, MAX_LINE, MAX_LINES = 250, 500, 20
MAX_PART = 160

_WORDS = {
    ObjectDrift.KIND_DELETED: "was deleted",
    ObjectDrift.KIND_DELETING: "is being deleted, and a finalizer holds it",
    ObjectDrift.KIND_REPLACED: "was replaced by another object",
}

#: States of a drift that resolve its alert in GitLab.
_OVER = (ObjectDrift.STATE_REPAIRED, ObjectDrift.STATE_ENDED)


def alert_of(event: AgentDrift, drift: ObjectDrift, now: float) -> dict[str, Any]:
    """
    Return the payload of the alert for a drift.

    All alerts of an object have the same fingerprint, so that GitLab shows a single
    alert. Source of names: GitLab's documentation, "Customize the alert payload outside
    of GitLab".

    :param now: the current time in seconds since 1970.
    """
    named = drift.object
    kind = f"{named.kind}.{named.group}" if named.group else named.kind
    name = f"{named.namespace}/{named.name}" if named.namespace else named.name
    what = _WORDS.get(drift.kind, "was changed")
    identity = "\0".join(
        (event.agent_id, drift.project, kind, named.namespace, named.name)
    )
    alert = {
        "title": clean(f"{kind} {name} {what}", MAX_TITLE),
        "description": "\n".join(_lines(drift)),
        "start_time": _time(drift.found_at.seconds or now),
        "service": drift.project,
        "monitoring_tool": "txkas",
        "hosts": event.agent_name,
        "severity": "medium" if drift.kind == ObjectDrift.KIND_CHANGED else "high",
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
    }
    if drift.state in _OVER:
        alert["end_time"] = _time(now)
    return alert


def _lines(drift: ObjectDrift) -> Iterator[str]:
    """
    Yield the lines of the description.

    No line begins with a slash: GitLab copies the lines into incidents, and treats such
    lines as commands.  Texts from clusters and commits are formatted as code: otherwise
    they could mention users, who would get mail, and embed pictures and links.
    """
    if drift.reason:
        yield f"Why it is not repaired: {_code(drift.reason, MAX_LINE)}"
    if drift.credentials:
        yield f"By: {_code(', '.join(drift.credentials), MAX_LINE)}"
    elif drift.writers:
        managers = sorted({one.manager for one in drift.writers})
        yield f"By: {_code(', '.join(managers), MAX_LINE)}"
    if drift.commit:
        place, commit = _code(drift.place, MAX_LINE), _code(drift.commit, 12)
        yield f"In Git: {place} at {commit}"
    fields = list(drift.fields)
    for one in fields[:MAX_LINES]:
        path, wanted, live = (
            _code(text or "absent", MAX_PART)
            for text in (one.path, one.wanted, one.live)
        )
        yield f"Field {path}: {wanted} in Git, {live} now"
    more = drift.more_fields + len(fields[MAX_LINES:])
    if more:
        yield f"Fields that are not shown: {more}"


def _code(text: str, most: int) -> str:
    """Format text as code, so that no part of the text can end the code."""
    return f"`{clean(text, most).replace('`', '?') or '?'}`"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
