"""Texts for operators about a project, with the command that solves the problem."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator

from modules.gitops.agent.apply.pruner import Pruning
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.project.desired import UnreadablePin
from modules.gitops.agent.project.journal import MAX_LINE
from modules.gitops.agent.project.reconcile import Report
from tunnel.errors import CallError, Status
from tunnel.toolkit.texts import clean

__all__ = [
    "LOST",
    "LOST_BEFORE",
    "MAX_KINDS",
    "how_to_look",
    "how_to_release",
    "no_object",
    "pruning_lines",
    "why_nothing_was_done",
]

#: Problem of a project that was applied before, but has no inventory any more.
LOST = (
    "the inventory of this project is gone, so agentk does not know the objects that "
    "were removed from Git meanwhile or wait for an approval: they stay; delete with "
    "kubectl what is not needed (agentk begins a new inventory)"
)

#: Notice of such a project after its new inventory was written.
LOST_BEFORE = (
    "the inventory of this project was gone: objects that were removed from Git before "
    "then, or waited for an approval, may still be in the cluster; delete with kubectl "
    "what is not needed, and end this message with 'kasctl gitops resume'"
)

#: Maximum number of kinds without a watch that the status names.
MAX_KINDS = 5

#: Maximum number of objects in deletion whose reason the status shows.
MAX_STAYING = 5


def how_to_look(agent: str, project: str) -> str:
    """Return the command that shows the status."""
    return f"see 'kasctl gitops status {shlex.join([agent, project])}'"


def how_to_release(agent: str, project: str, report: Report) -> str:
    """Return the command that approves the waiting deletes."""
    count = len(report.held)
    what = "1 object waits" if count == 1 else f"{count} objects wait"
    words = (agent, project, report.release)
    return f"{what} for an approval; to delete: kasctl gitops approve {' '.join(words)}"


def why_nothing_was_done(error: CallError, namespace: str) -> str:
    """
    Return the text for operators about a pass that ended early because of *error*.

    :param namespace: the Namespace of the inventory; empty if it is unknown.
    """
    if isinstance(error, UnreadablePin):
        return error.message
    if (
        error.status is Status.NOT_FOUND
        and f'namespaces "{namespace}"' in error.message
    ):
        return (
            f"the Namespace {namespace}, which is to hold the inventory, does not "
            "exist: create it, or name another one in "
            "modules.gitops.inventory_namespace of agentk"
        )
    if error.status not in (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED):
        return error.message
    return f"the API server cannot be reached: {error.message}"


def pruning_lines(pruning: Pruning) -> Iterator[str]:
    """Yield the progress of deletes, and the reasons of the first objects that stay."""
    word = "approved" if pruning.approved else "pruning"
    yield f"{word}, {pruning.gone} of {pruning.total} gone"
    for key, why in sorted(pruning.stays.items())[:MAX_STAYING]:
        yield f"{key} still exists: {clean(why, MAX_LINE, ' ')}"


def no_object(key: ObjectKey, known: Collection[ObjectKey]) -> str:
    """Return an error for an unknown *key*, with similar objects of the project."""
    text = f"the project has no object {_argument(key)}"
    wanted = key.kind.lower(), key.name
    # Look for similar keys: users often omit the group or Namespace, and kubectl
    # ignores the case of a kind.
    near = sorted(one for one in known if (one.kind.lower(), one.name) == wanted)
    if near:
        return f"{text}; it has {', '.join(map(_argument, near[:MAX_KINDS]))}"
    return (
        f"{text}: name it KIND[.GROUP]/[NAMESPACE/]NAME, as 'kasctl gitops status "
        "--objects' lists them"
    )


def _argument(key: ObjectKey) -> str:
    """Return the argument of ``kasctl gitops repair`` for an object."""
    return str(key).replace(" ", "/", 1)[:MAX_LINE]
