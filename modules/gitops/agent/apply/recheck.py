"""
Prune guards of a single object, which take the other deletes of the plan into account.
"""

from __future__ import annotations

from functools import partial

from modules.gitops.agent.apply.execution import Execution
from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.prune_guards import guard_of_object, is_kept
from modules.gitops.agent.plan.plan import Verb
from tunnel.api import KubernetesObject

__all__ = ["why_kept"]


async def why_kept(execution: Execution, live: KubernetesObject) -> str:
    """
    Return why an object must not be deleted now; empty if the object may be deleted.

    :raises CallError: if the API server is unavailable.
    """
    return is_kept(live) or await guard_of_object(
        execution.client, live, execution.inventory_id, partial(_goes, execution)
    )


def _goes(execution: Execution, key: ObjectKey) -> bool:
    """Return whether the plan deletes an object anyway, or has deleted it."""
    action = execution.plan.leaving.get(key)
    result = execution.ledger.results.get(key)
    return (
        action is not None
        and action.verb is Verb.PRUNE
        and (result is None or result.outcome is Outcome.PRUNED)
    )
