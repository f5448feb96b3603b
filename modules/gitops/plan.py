"""
What has to be done so that the cluster is as a source says.

A plan is a value: what is applied, shown and compared is this one, and nothing decides
a second time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Literal

import attrs

from modules.gitops.brakes import (
    AWAY,
    brake_of_object,
    brake_of_set,
    is_kept,
    owner_of,
)
from modules.gitops.inventory import Inventory
from modules.gitops.manifests import Manifest, ObjectKey, Origin
from modules.gitops.order import Order, order_of
from modules.gitops.parallel import in_parallel
from modules.gitops.resolve import Resolved
from modules.gitops.settings import PruneLimits
from tunnel.errors import CallError, Status
from tunnel.interfaces import IKubernetesClient, KubernetesObject, KubernetesResource

__all__ = [
    "Action",
    "Plan",
    "SourceSettings",
    "Verb",
    "live_object",
    "make_plan",
]


class Verb(Enum):
    """What happens to an object."""

    CREATE = "create"
    #: It is there and ours; whether it differs the API server says.
    APPLY = "apply"
    #: It is there, of no source, and becomes ours.
    ADOPT = "adopt"
    #: Nothing happens, for a reason that a person has to see to.
    REFUSE = "refuse"
    PRUNE = "prune"
    #: It stays in the cluster, and is ours no more.
    DETACH = "detach"
    #: It is gone, or of others; only the inventory has it.
    FORGET = "forget"
    #: It would be pruned, and a brake stops that.
    BLOCK = "block"


@attrs.frozen(eq=False)
class Action:
    """
    What happens to one object.

    :ivar live: the object as it was when the plan was made; of one that is wanted only
        its uid and version.
    """

    verb: Verb
    key: ObjectKey
    reason: str = ""
    manifest: Manifest | None = None
    live: KubernetesObject | None = attrs.field(default=None, repr=False)

    @property
    def uid(self) -> str:
        """Of the live object; empty: there was none."""
        return self.live["metadata"]["uid"] if self.live is not None else ""


@attrs.frozen(eq=False)
class Plan:
    """
    What happens to a source's objects.

    :ivar inventory: as it was when the plan was made.
    :ivar wanted: what is in Git, by key.
    :ivar leaving: what the inventory has and Git has not.
    :ivar order: of *wanted*; *leaving* is deleted in the layers of *leaving_layers*.
    :ivar complete: nothing of *wanted* is refused, so that what is not there may go.
    """

    commit: str
    inventory: Inventory
    wanted: Mapping[ObjectKey, Action]
    leaving: Mapping[ObjectKey, Action]
    order: Order
    leaving_layers: tuple[tuple[ObjectKey, ...], ...]
    complete: bool


@attrs.frozen(kw_only=True)
class SourceSettings:
    """
    What the agent's configuration says of how a source is applied.

    :ivar inventory_id: of the source, and the mark of its objects.
    :ivar default_namespace: of objects that name none.
    """

    inventory_id: str
    policy: Literal["must_match", "adopt_if_no_inventory", "adopt_all"] = "must_match"
    default_namespace: str = "default"
    prune: bool = True
    limits: PruneLimits = attrs.field(factory=PruneLimits)


async def live_object(
    client: IKubernetesClient, resource: KubernetesResource | None, key: ObjectKey
) -> KubernetesObject | None:
    """The object now; None: there is none, or no such kind."""
    if resource is None:
        return None
    try:
        return await client.get(resource, key.name, key.namespace)
    except CallError as error:
        if error.status is Status.NOT_FOUND:
            return None
        raise


async def make_plan(
    client: IKubernetesClient,
    commit: str,
    resolved: Resolved,
    order: Order,
    inventory: Inventory,
    settings: SourceSettings,
) -> Plan:
    """
    Compare what is wanted with the cluster.

    :param order: of the objects of *resolved*, without problems.
    :raises CallError: the cluster cannot be asked now.
    """
    wanted = await in_parallel(
        _wanting(client, resolved, one, settings) for one in resolved.manifests
    )
    complete = all(one.verb is not Verb.REFUSE for one in wanted)
    keys = {one.key for one in wanted}
    kinds = {(one.group, one.kind): one for one in await client.resources()}
    gone = [key for key in inventory.entries if key not in keys]
    leaving = await in_parallel(
        _leaving(client, kinds.get((key.group, key.kind)), key, inventory, settings)
        for key in gone
    )
    braked = await _braked(
        client, commit, leaving, inventory, len(keys), complete, settings
    )
    return Plan(
        commit,
        inventory,
        {one.key: one for one in wanted},
        {one.key: one for one in braked},
        order,
        _layers(braked),
        complete,
    )


def _wanting(
    client: IKubernetesClient,
    resolved: Resolved,
    manifest: Manifest,
    settings: SourceSettings,
) -> Callable[[], Awaitable[Action]]:
    key = manifest.key

    async def look() -> Action:
        if (problem := resolved.unknown.get(key)) is not None:
            return Action(Verb.REFUSE, key, problem.message, manifest)
        resource = resolved.resources.get((manifest.api_version, key.kind))
        try:
            live = await live_object(client, resource, key)
        except CallError as error:
            if error.status in AWAY:
                raise
            return Action(Verb.REFUSE, key, error.message, manifest)
        if live is None:
            return Action(Verb.CREATE, key, "", manifest)
        owner = owner_of(live)
        if owner == settings.inventory_id:
            return Action(Verb.APPLY, key, "", manifest, _known(live))
        adopts = settings.policy == "adopt_all" or (
            not owner and settings.policy == "adopt_if_no_inventory"
        )
        if adopts:
            return Action(Verb.ADOPT, key, _of(owner), manifest, _known(live))
        why = f"it is {_of(owner)}, and inventory_policy is {settings.policy}"
        return Action(Verb.REFUSE, key, why, manifest)

    return look


def _known(live: KubernetesObject) -> KubernetesObject:
    """What is needed later: thousands of whole objects would not fit into memory."""
    metadata = live["metadata"]
    return {"metadata": {key: metadata[key] for key in ("uid", "resourceVersion")}}


def _of(owner: str) -> str:
    return f"of the inventory {owner}" if owner else "of no inventory"


def _leaving(
    client: IKubernetesClient,
    resource: KubernetesResource | None,
    key: ObjectKey,
    inventory: Inventory,
    settings: SourceSettings,
) -> Callable[[], Awaitable[Action]]:
    async def look() -> Action:
        try:
            live = await live_object(client, resource, key)
        except CallError as error:
            if error.status in AWAY:
                raise
            return Action(Verb.BLOCK, key, error.message)
        if live is None:
            return Action(Verb.FORGET, key, "it is gone")
        known = inventory.entries[key].uid
        if known and known != live["metadata"]["uid"]:
            why = "another object has this name now"
            return Action(Verb.FORGET, key, why, live=live)
        owner = owner_of(live)
        if owner != settings.inventory_id:
            return Action(Verb.FORGET, key, f"it is {_of(owner)}", live=live)
        if kept := is_kept(live):
            return Action(Verb.DETACH, key, kept, live=live)
        return Action(Verb.PRUNE, key, live=live)

    return look


async def _braked(
    client: IKubernetesClient,
    commit: str,
    leaving: Iterable[Action],
    inventory: Inventory,
    wanted: int,
    complete: bool,
    settings: SourceSettings,
) -> list[Action]:
    """With BLOCK in place of PRUNE where a brake stops it."""
    leaving = list(leaving)
    count = sum(one.verb is Verb.PRUNE for one in leaving)
    why = ""
    if not settings.prune:
        why = "prune is false"
    elif not complete:
        why = "not all objects of the source can be applied"
    elif inventory.approved == commit:
        pass
    elif inventory.default_namespace not in ("", settings.default_namespace):
        before = inventory.default_namespace
        why = f"default_namespace was {before}: objects would go there, and come anew"
    else:
        why = brake_of_set(count, len(inventory.entries), wanted, settings.limits)

    async def braked(action: Action) -> Action:
        if action.verb is not Verb.PRUNE:
            return action
        reason = why
        if not reason and action.live is not None:
            owner = settings.inventory_id
            reason = await brake_of_object(client, action.live, owner)
        return (
            attrs.evolve(action, verb=Verb.BLOCK, reason=reason) if reason else action
        )

    return [await braked(one) for one in leaving]


def _layers(leaving: Iterable[Action]) -> tuple[tuple[ObjectKey, ...], ...]:
    """The last first: what others need goes after them."""
    manifests = [
        Manifest(one.key, one.live, Origin("the cluster"))
        for one in leaving
        if one.verb is Verb.PRUNE and one.live is not None
    ]
    order = order_of(manifests)
    # References to what is not leaving are no reason to keep any of them.
    layers = order.layers or (tuple(one.key for one in manifests),)
    return tuple(reversed(layers)) if manifests else ()
