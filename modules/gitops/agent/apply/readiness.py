"""Waits until applied objects are current."""

from __future__ import annotations

from collections.abc import Collection

from twisted.internet.task import deferLater

from modules.gitops.agent.apply.execution import Execution, looks
from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.errors import CallError
from tunnel.kubernetes import HealthStatus, health_of

__all__ = ["wait_until_current"]


async def wait_until_current(execution: Execution, keys: Collection[ObjectKey]) -> None:
    """
    Wait until the objects are current; record a failure for each object that does not
    become current.
    """
    waiting = {
        key
        for key in keys
        if execution.ledger.results[key].outcome
        not in (Outcome.FAILED, Outcome.SKIPPED, Outcome.LEFT)
    }
    timeout = execution.settings.reconcile_timeout
    if not timeout:
        return
    until, backoff = execution.clock.seconds() + timeout, looks()
    while waiting:
        reasons: dict[ObjectKey, str] = {}
        for key in sorted(waiting):
            status, reason = await _health(execution, key)
            if status is HealthStatus.CURRENT:
                waiting.discard(key)
            elif status is HealthStatus.FAILED:
                waiting.discard(key)
                execution.ledger.note(key, Outcome.FAILED, reason)
            else:
                reasons[key] = reason
        if waiting and execution.clock.seconds() >= until:
            for key in waiting:
                why = f"not current in {timeout:g} s: "
                execution.ledger.note(key, Outcome.FAILED, why + reasons[key])
            return
        if waiting:
            await deferLater(execution.clock, backoff.failed())


async def _health(execution: Execution, key: ObjectKey) -> tuple[HealthStatus, str]:
    action = execution.plan.wanted[key]
    assert action.manifest is not None
    try:
        live = await execution.live(action.manifest)
    except CallError as error:
        return HealthStatus.IN_PROGRESS, error.message
    if live is None:
        return HealthStatus.IN_PROGRESS, "it is gone"
    found = health_of(live, execution.now())
    return found.status, found.reason
