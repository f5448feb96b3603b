"""Decisions of two policies on the requests of an audit log of kas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import attrs
import msgspec

from agentk.policy.engine import Engine, PolicyDecision
from agentk.policy.questions import (
    AGENTK,
    CONNECTIONS,
    Identity,
    Question,
    with_creation,
)
from tunnel.kubernetes import Purpose, RequestOrigin, Right

__all__ = ["ChangedDecision", "Replay", "replay"]

#: Maximum number of different changes that are listed.
MAX_CHANGES: Final = 10_000

_KUBECTL: Final = RequestOrigin("kubernetes_api", Purpose.CALLER)
_CACHE: Final = RequestOrigin("cluster_data", Purpose.CALLER)


class _Line(msgspec.Struct, gc=False):
    """The fields of an event that a policy reads."""

    action: str = ""
    stage: str = ""
    time: str = ""
    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    user: str = msgspec.field(name="as", default="")


@attrs.frozen
class ChangedDecision:
    """Requests whose decision differs between two policies."""

    what: str
    user: str
    before: str
    after: str


@attrs.define
class Replay:
    """
    The result of a replay.

    :ivar changes: how often each change occurs.
    """

    requests: int = 0
    unreadable: int = 0
    left_out: int = 0
    changes: Counter[ChangedDecision] = attrs.field(factory=Counter)


def replay(lines: Iterable[bytes], old: Engine, new: Engine) -> Replay:
    """
    Let two policies decide on each request of an audit log.

    The log has neither the groups of users nor the programs of ``exec``.
    """
    result = Replay()
    decoder = msgspec.json.Decoder(_Line)
    minute = -1
    for line in lines:
        try:
            event = decoder.decode(line)
        except msgspec.DecodeError:
            result.unreadable += 1
            continue
        # A request that may last has two events.
        if event.action != "kubernetes.request" or event.stage == "ended":
            continue
        result.requests += 1
        if old.timed or new.timed:
            try:
                at = datetime.fromisoformat(event.time).timestamp()
            except ValueError:
                result.unreadable += 1
                continue
            if at // 60 != minute:
                minute = int(at // 60)
                old.tick(at)
                new.tick(at)
        questions = tuple(_questions(event))
        before, after = old.decide_all(questions), new.decide_all(questions)
        if before.allowed == after.allowed:
            continue
        change = ChangedDecision(
            questions[0].what, event.user, *(map(_said, (before, after)))
        )
        if change in result.changes or len(result.changes) < MAX_CHANGES:
            result.changes[change] += 1
        else:
            result.left_out += 1
    return result


def _said(decision: PolicyDecision) -> str:
    effect = "allow" if decision.allowed else "deny"
    return f"{effect} by {decision.rule}" if decision.rule else effect


def _questions(event: _Line) -> Iterator[Question]:
    identity = Identity(event.user) if event.user else AGENTK
    origin = _CACHE if event.path.startswith("/cache") else _KUBECTL
    if not event.resource:
        yield Question.to_path(origin, identity, event.verb, event.path)
        return
    # In the log, a WebSocket has the verb of its method.
    verb = "create" if event.subresource in CONNECTIONS else event.verb
    right = Right(
        verb,
        event.resource,
        event.group,
        event.subresource,
        event.namespace,
        event.name,
    )
    yield from with_creation(Question.about(origin, identity, right))
