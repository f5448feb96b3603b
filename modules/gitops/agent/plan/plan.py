"""
Changes that bring the cluster to the state of a source.

A plan is a value: agentk applies, shows and compares the same plan, and makes no
further decisions.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
)
from enum import Enum
from typing import Any, Literal

import attrs

from modules.gitops.agent.inventory.claims import Claim, ClaimsOf, no_claims
from modules.gitops.agent.inventory.inventory import Inventory
from modules.gitops.agent.inventory.listing import Seen, list_where_many
from modules.gitops.agent.objects.error_statuses import AWAY
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import Manifest, ObjectKey, Origin
from modules.gitops.agent.objects.owner_annotations import owner_of, was_given
from modules.gitops.agent.objects.prune_guards import (
    groups_elsewhere,
    guard_of_object,
    guard_of_set,
    is_kept,
    kinds_defined,
)
from modules.gitops.agent.plan.order import Order, order_of
from modules.gitops.agent.plan.resolve import Resolved
from modules.gitops.wire.settings import PruneLimits
from tunnel.api import (
    AgentScope,
    IKubernetesClient,
    KubernetesObject,
    KubernetesResource,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel

__all__ = [
    "FOLDER_GONE",
    "INCOMPLETE",
    "UNSIGNED",
    "UNSIGNED_CLAIMED",
    "Action",
    "Gift",
    "Given",
    "OtherSources",
    "Plan",
    "SourceSettings",
    "Verb",
    "make_plan",
    "plan_some",
]


#: Maximum characters of the id of an inventory, because a ConfigMap's name cannot be
#: longer.
MAX_OWNER = 253


#: Reason why no object is pruned while an object is refused.
INCOMPLETE = "not all objects of the source can be applied"

#: Reason why an object is not pruned although the inventory contains it.
UNSIGNED = (
    "the inventory does not prove that this agentk applied it: approve it if the "
    "object belongs to this project"
)

#: Reason why an object is not released for another agent that claims it.
UNSIGNED_CLAIMED = (
    "the inventory does not prove that this agentk applied it: add the object to Git "
    "here once more if it belongs to this project, or else remove the entry"
)

#: Reason why a project with a missing folder neither creates nor takes objects.
FOLDER_GONE = (
    "the newest commit does not contain the folder of the project, so the object is "
    "not created again, nor taken from other projects: add the folder, or remove the "
    "project"
)


class Verb(Enum):
    """Kind of change to an object."""

    CREATE = "create"
    #: The object exists and the source owns it; the API server determines whether it
    #: differs.
    APPLY = "apply"
    #: The object exists, belongs to no source, and this source becomes its owner.
    ADOPT = "adopt"
    #: The object is not changed, for a reason that needs an operator.
    REFUSE = "refuse"
    #: Other clients have changed the object since it was applied; the drift is only
    #: reported.
    LEAVE = "leave"
    PRUNE = "prune"
    #: The object stays in the cluster, but the source no longer owns it.
    DETACH = "detach"
    #: The object does not exist or has another owner; only the inventory still contains
    #: it.
    FORGET = "forget"
    #: The object would be pruned, but a prune guard prevents it.
    BLOCK = "block"


@attrs.frozen(eq=False)
class Action:
    """
    Change of one object.

    :ivar live: for an object that was removed from Git, its live state when the plan
        was made.
    :ivar seen: for an object in Git, its live state; None if it does not exist.
    :ivar held: the limit of the source that prevents the delete; empty if the delete is
        not held.
    :ivar claims: for an object that belongs to another inventory and is claimed, the id
        of that inventory; otherwise empty.
    :ivar takes: whether this source becomes the owner of an object that another
        inventory owned, so that another agent may take it, too, or delete it.
    :ivar gives: for a detached object, whether another agent will take it.
    """

    verb: Verb
    key: ObjectKey
    reason: str = ""
    manifest: Manifest | None = None
    live: KubernetesObject | None = attrs.field(default=None, repr=False)
    held: str = ""
    seen: Seen | None = None
    claims: str = ""
    takes: bool = False
    gives: bool = False

    @property
    def uid(self) -> str:
        """Uid of the live object; empty if the object did not exist."""
        if self.seen is not None:
            return self.seen.uid
        return self.live["metadata"].get("uid", "") if self.live is not None else ""


@attrs.frozen(eq=False)
class Plan:
    """
    Changes of a source's objects.

    :ivar inventory: the inventory when the plan was made.
    :ivar wanted: the objects in Git, by key.
    :ivar leaving: objects of the inventory that Git does not contain.
    :ivar order: the order of *wanted*.
    :ivar leaving_order: the order of the pruned objects of *leaving*; agentk prunes in
        reverse.
    :ivar held: objects of *leaving* that wait for an operator's approval, because a
        limit of the source holds them back.
    :ivar whole: whether *wanted* contains all objects in Git.
    :ivar waits: whether an object of *leaving* stays for others, which may still need
        it.
    :ivar unproven: objects of *leaving* whose entries other clients may have written:
        they decide neither about other objects nor about other sources.
    """

    commit: str
    inventory: Inventory
    wanted: Mapping[ObjectKey, Action]
    leaving: Mapping[ObjectKey, Action]
    order: Order
    leaving_order: Order
    held: tuple[ObjectKey, ...] = ()
    whole: bool = True
    waits: bool = False
    unproven: frozenset[ObjectKey] = frozenset()


@attrs.frozen(kw_only=True)
class SourceSettings:
    """
    Settings of the agent's configuration for applying a source.

    :ivar inventory_id: the id of the source's inventory, which is also the mark of its
        objects.
    :ivar default_namespace: the Namespace of objects that do not name one.
    :ivar force: whether to take fields from any other manager.
    :ivar reconcile_timeout: seconds until an object that agentk waits for must be
        current; 0 to not wait.
    :ivar awaits_all: whether all objects must become current, because other sources
        wait for them; otherwise only objects that other objects of the source wait for.
    :ivar source: see `Inventory`.
    :ivar takes_back: whether to revert fields that other managers changed after agentk
        applied them, if Git still contains them.
    :ivar only_reports: whether changes by other clients stay.
    :ivar repairs: whether every change in this plan reverts a change by other clients.
    :ivar prune_timeout: seconds until a deleted object must be gone; until then, agentk
        does not delete the objects that it needs; 0 to not wait.
    :ivar only_keeps: whether no object is created or taken; see `FOLDER_GONE`.
    :ivar selection: see `Inventory.selection`.
    :ivar scope: the part of the cluster that the agent works in.
    :ivar siblings: the other sources of this agent, by the ids of their inventories.
    """

    inventory_id: str
    source: str = ""
    selection: str = ""
    scope: AgentScope = attrs.field(factory=AgentScope)
    siblings: Mapping[str, str] = attrs.field(factory=dict)
    policy: Literal["must_match", "adopt_if_no_inventory", "adopt_all"] = "must_match"
    force: bool = False
    reconcile_timeout: float = 3600.0
    awaits_all: bool = False
    takes_back: bool = False
    only_reports: bool = False
    repairs: bool = False
    only_keeps: bool = False
    prune_timeout: float = 3600.0
    propagation: Literal["Background", "Foreground", "Orphan"] = "Foreground"
    default_namespace: str = "default"
    prune: bool = True
    limits: PruneLimits = attrs.field(factory=PruneLimits)


@attrs.frozen
class Gift:
    """
    Answer to the question whether another source has given up an object.

    :ivar why_unknown: why this is not known yet; empty if it is known.
    """

    is_made: bool
    why_unknown: str = ""


#: Function that returns whether the source with an inventory has given up an object.
Given = Callable[[ObjectKey, str], Awaitable[Gift]]


#: Verbs after which this source no longer owns an object, unless another project or
#: agent that has the object in Git takes it.
_LETS_GO = (Verb.PRUNE, Verb.DETACH)


async def _nothing_given(key: ObjectKey, owner: str) -> Gift:
    """Return a negative answer: no source has given up any object."""
    return Gift(False)


@attrs.frozen(eq=False, kw_only=True)
class OtherSources:
    """
    Questions to the other projects of this agent, and to the other agents.

    :ivar stays: returns why an object that was removed from Git stays for another
        source; empty if the object need not stay.
    :ivar given: returns whether another source has given up an object that is in its
        inventory.
    :ivar claims: returns the objects that other agents have in Git.
    """

    stays: Callable[[ObjectKey], str] = lambda key: ""
    given: Given = _nothing_given
    claims: ClaimsOf = no_claims


async def make_plan(
    client: IKubernetesClient,
    commit: str,
    resolved: Resolved,
    order: Order,
    inventory: Inventory,
    settings: SourceSettings,
    others: OtherSources,
) -> Plan:
    """
    Compare the wanted objects with the cluster and return the plan.

    :param order: the order of the objects of *resolved*, without problems.
    :raises CallError: if the API server is unavailable.
    """
    listed = await _listed(client, resolved, inventory, settings.scope)
    wanted = await in_parallel(
        _wanting(client, resolved, one, settings, listed, inventory, others.given)
        for one in resolved.manifests
    )
    complete = all(one.verb is not Verb.REFUSE for one in wanted)
    keys = {one.key for one in wanted}
    kinds = {(one.group, one.kind): one for one in await client.resources()}
    gone = [key for key in inventory.entries if key not in keys]
    absent = {(key.group, key.kind) for key in gone} - kinds.keys()
    unseen = await _unseen(client, absent)
    leaving = await in_parallel(
        _leaving(client, kinds, unseen, key, inventory, settings) for key in gone
    )
    ours = {one.uid: one.key for one in wanted if one.uid}
    leaving = [
        Action(
            Verb.FORGET,
            one.key,
            f"it is the same object as {ours[one.uid]}",
            live=one.live,
        )
        if one.uid in ours
        else one
        for one in leaving
    ]
    leaving = [
        attrs.evolve(one, verb=Verb.BLOCK, reason=why)
        if one.verb in _LETS_GO and (why := others.stays(one.key))
        else one
        for one in leaving
    ]
    going = {
        one.key: one.live
        for one in leaving
        if one.verb in _LETS_GO and one.live is not None
    }
    claimed = await others.claims(going)
    leaving = [_unless_claimed(one, claimed, inventory) for one in leaving]
    unproven = frozenset(one.key for one in leaving if not _is_proven(one, inventory))
    waits = any(one.verb is Verb.BLOCK and one.key not in unproven for one in leaving)
    # Objects that agentk would never delete must not lower the share of the deletes.
    never = {one.key for one in leaving if one.verb is Verb.DETACH} | {
        one.key
        for one in wanted
        if one.manifest is not None and is_kept(one.manifest.object)
    }
    held, delayed = _held(commit, leaving, inventory, never, len(keys), settings)
    stopped = delayed | held
    kept = [
        one.key
        for one in leaving
        if one.verb is Verb.PRUNE
        and one.key in stopped
        and not inventory.approval.covers(commit, one.key, one.uid)
    ]
    why = ""
    if not settings.prune:
        why = "prune is false"
    elif not complete:
        why = INCOMPLETE
    else:
        reasons = {key: stopped[key] for key in kept}
        leaving = await _guarded(client, leaving, reasons, settings)
    leaving = [
        attrs.evolve(
            one,
            verb=Verb.BLOCK if one.verb is Verb.PRUNE and why else one.verb,
            reason=one.reason or why,
            held=held.get(one.key) or inventory.entries[one.key].held,
        )
        for one in leaving
    ]
    return Plan(
        commit,
        inventory,
        {one.key: one for one in wanted},
        {one.key: one for one in leaving},
        order,
        _leaving_order(leaving),
        # If the source does not prune, no approval is needed.
        tuple(kept) if settings.prune else (),
        waits=waits,
        unproven=unproven,
    )


def _unless_claimed(
    action: Action, claims: Mapping[ObjectKey, Claim], inventory: Inventory
) -> Action:
    """
    Return the action for a removed object, which another agent may have claimed.
    """
    claim = claims.get(action.key)
    if claim is None:
        return action
    if not claim.is_made:
        return attrs.evolve(action, verb=Verb.BLOCK, reason=claim.reason)
    if not _is_proven(action, inventory):
        why = f"{claim.reason}, but {UNSIGNED_CLAIMED}"
        return attrs.evolve(action, verb=Verb.BLOCK, reason=why)
    return attrs.evolve(action, verb=Verb.DETACH, reason=claim.reason, gives=True)


async def plan_some(
    client: IKubernetesClient,
    commit: str,
    resolved: Resolved,
    inventory: Inventory,
    settings: SourceSettings,
    others: OtherSources,
) -> Plan:
    """
    Return a plan for some objects of a source, which prunes no object.

    :raises CallError: if the API server is unavailable.
    """
    wanted = await in_parallel(
        _wanting(client, resolved, one, settings, {}, inventory, others.given)
        for one in resolved.manifests
    )
    return Plan(
        commit,
        inventory,
        {one.key: one for one in wanted},
        {},
        _order_of_some(resolved.manifests),
        Order(),
        whole=False,
    )


async def _listed(
    client: IKubernetesClient,
    resolved: Resolved,
    inventory: Inventory,
    scope: AgentScope,
) -> dict[ObjectKey, Seen | None]:
    """
    Return the live state of many objects of the scope, with few requests.

    Namespaces that may be new are requested first, because a missing Namespace contains
    no objects.
    """

    def known(
        manifests: Iterable[Manifest],
    ) -> list[tuple[KubernetesResource, ObjectKey]]:
        return [
            (resource, one.key)
            for one in manifests
            if (resource := resolved.resources.get((one.api_version, one.key.kind)))
        ]

    manifests = [one for one in resolved.manifests if scope.contains(one.key.namespace)]
    places = [
        one
        for one in manifests
        if (one.key.group, one.key.kind) == ("", "Namespace")
        and one.key not in inventory.entries
    ]
    seen = await list_where_many(client, known(places))
    absent = {key.name for key, found in seen.items() if found is None}
    inside = [one for one in manifests if one.key.namespace in absent]
    seen.update(dict.fromkeys(key for _, key in known(inside)))
    others = [one for one in manifests if one.key not in seen]
    return seen | await list_where_many(client, known(others))


def _wanting(
    client: IKubernetesClient,
    resolved: Resolved,
    manifest: Manifest,
    settings: SourceSettings,
    listed: Mapping[ObjectKey, Seen | None],
    inventory: Inventory,
    given: Given,
) -> Callable[[], Coroutine[Any, Any, Action]]:
    key = manifest.key

    async def look() -> Action:
        if (problem := resolved.unknown.get(key)) is not None:
            return Action(Verb.REFUSE, key, problem, manifest)
        if outside := settings.scope.why_outside(key.namespace):
            return Action(Verb.REFUSE, key, outside, manifest)
        resource = resolved.resources.get((manifest.api_version, key.kind))
        try:
            if key in listed:
                seen = listed[key]
            else:
                live = await live_object(client, resource, key)
                seen = None if live is None else Seen.of(live)
        except CallError as error:
            if error.status in AWAY:
                raise
            return Action(Verb.REFUSE, key, error.message, manifest)
        if settings.only_keeps and (
            seen is None or seen.owner != settings.inventory_id
        ):
            return Action(Verb.REFUSE, key, FOLDER_GONE, manifest, seen=seen)
        if seen is None:
            return Action(Verb.CREATE, key, "", manifest)
        owner = seen.owner
        if seen.is_bookkeeping:
            # Do not apply the object: otherwise every author in Git could decide in
            # place of an operator.
            why = (
                "agentk itself writes it: it is an inventory, or contains earlier "
                "states of objects"
            )
            return Action(Verb.REFUSE, key, why, manifest)
        if owner == settings.inventory_id:
            return Action(Verb.APPLY, key, "", manifest, seen=seen)
        gift = await given(key, owner) if owner else Gift(False)
        if gift.is_made:
            # Another source of this agent does not need the object any more.
            return Action(Verb.APPLY, key, _of(owner), manifest, seen=seen)
        known = inventory.entries.get(key)
        was = "" if known is None or known.uid != seen.uid else known.claimed
        is_known = known is not None and known.uid == seen.uid
        is_ours = seen.claimed_by == settings.inventory_id
        if not owner and is_ours and (was or (is_known and seen.given_by)):
            # The former inventory has released the object without deleting it.
            former = was or seen.given_by
            return Action(Verb.APPLY, key, _of(former), manifest, seen=seen, takes=True)
        claimer = seen.claimed_by if seen.given_by and not owner else ""
        if claimer in settings.siblings and (await given(key, claimer)).is_made:
            why = "it was given to another project of this agent, which gave it up"
            return Action(Verb.APPLY, key, why, manifest, seen=seen, takes=True)
        if not owner and seen.given_by == settings.inventory_id:
            # The manifest returned to this source before the other agent took the
            # object.
            why = "it was given to another agent, which has not taken it"
            return Action(Verb.APPLY, key, why, manifest, seen=seen, takes=True)
        if seen.engine:
            # Do not apply the object: otherwise each engine would revert the changes of
            # the other.
            why = f"{seen.engine} applies it; remove it there first"
            return Action(Verb.REFUSE, key, why, manifest)
        adopts = settings.policy == "adopt_all" or (
            not owner and settings.policy == "adopt_if_no_inventory"
        )
        if adopts:
            return Action(
                Verb.ADOPT,
                key,
                _of(owner),
                manifest,
                seen=seen,
                claims=_claimable(owner),
                takes=bool(owner or seen.given_by),
            )
        enough = "adopt_all" if owner else "adopt_if_no_inventory"
        why = (
            f"it is {_of(owner)}, and inventory_policy is {settings.policy}: "
            f"{enough} takes it over"
        )
        if gift.why_unknown:
            why = f"it is {_of(owner)}; {gift.why_unknown}"
        if sibling := settings.siblings.get(owner):
            why = (
                f"project {sibling} of this agent has it: remove its manifest from "
                "one of the two projects"
            )
        # Claim the object, so that another agent that prunes it sees that this source
        # needs it.  The object may also have been released for the other agent, which
        # has not taken it.
        former = owner or (seen.given_by if seen.claimed_by else "")
        claims = _claimable(former)
        return Action(Verb.REFUSE, key, why, manifest, seen=seen, claims=claims)

    return look


def _claimable(owner: str) -> str:
    """
    Return the inventory from which to claim an object; empty if its name is too long.
    """
    return owner if len(owner) <= MAX_OWNER else ""


def _of(owner: str) -> str:
    return f"owned by the inventory {owner}" if owner else "of no inventory"


async def _unseen(
    client: IKubernetesClient, absent: Collection[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """
    Return the groups and kinds that may have objects although they are not listed, each
    with the reason.
    """
    if not absent:
        return {}
    try:
        elsewhere = await groups_elsewhere(client)
        defined = await kinds_defined(client, {group for group, _ in absent})
    except CallError as error:
        if error.status is not Status.PERMISSION_DENIED:
            raise
        why = (
            "its kind was deleted or is unavailable now, and agentk lacks the "
            "permission to find out which: "
        )
        return dict.fromkeys(absent, why + error.message)
    found = {
        kind: "another API server serves its group, and does not list this kind now"
        if elsewhere[kind[0]]
        else "the API server of its kind is unavailable"
        for kind in absent
        if kind[0] in elsewhere
    }
    unserved = "the definition of its kind exists, but no version of it is served"
    return found | dict.fromkeys(defined & set(absent), unserved)


def _leaving(
    client: IKubernetesClient,
    kinds: Mapping[tuple[str, str], KubernetesResource],
    unseen: Mapping[tuple[str, str], str],
    key: ObjectKey,
    inventory: Inventory,
    settings: SourceSettings,
) -> Callable[[], Coroutine[Any, Any, Action]]:
    async def look() -> Action:
        kind = (key.group, key.kind)
        if kind in unseen:
            return Action(Verb.BLOCK, key, unseen[kind])
        resource = kinds.get(kind)
        entry = inventory.entries[key]
        if outside := settings.scope.why_outside(key.namespace):
            # Another agent decides about the object, and this one does not read it.
            return Action(Verb.FORGET, key, outside)
        try:
            live = await live_object(client, resource, key)
        except CallError as error:
            # An entry of another client may name any object, and must stop neither
            # this source nor those that depend on it.
            if error.status in AWAY:
                if entry.is_signed:
                    raise
            elif not entry.is_signed:
                return Action(Verb.FORGET, key, error.message)
            return Action(Verb.BLOCK, key, error.message)
        if live is None:
            return Action(Verb.FORGET, key, "it is gone")
        owner = owner_of(live)
        is_same = entry.uid in ("", live["metadata"].get("uid", ""))
        if not is_same and owner != settings.inventory_id:
            why = "another object has this name now"
            return Action(Verb.FORGET, key, why, live=live)
        if owner != settings.inventory_id and not was_given(
            live, entry.claimed, entry.uid, settings.inventory_id
        ):
            return Action(Verb.FORGET, key, f"it is {_of(owner)}", live=live)
        if kept := is_kept(live):
            # Without a signature, the annotations of the object may be another
            # installation's.
            verb = Verb.DETACH if entry.is_signed and is_same else Verb.FORGET
            return Action(verb, key, kept, live=live)
        # If another object has this name now, agentk may have been interrupted when it
        # had recreated the object: `_held` keeps such an object until an approval.
        return Action(Verb.PRUNE, key, live=live)

    return look


def _is_proven(action: Action, inventory: Inventory) -> bool:
    """
    Return whether the inventory proves that this agentk applied the live object of an
    action.
    """
    entry = inventory.entries[action.key]
    is_same = not entry.uid or action.uid in ("", entry.uid)
    return entry.is_signed and is_same


def _held(
    commit: str,
    leaving: Collection[Action],
    inventory: Inventory,
    never: Collection[ObjectKey],
    wanted: int,
    settings: SourceSettings,
) -> tuple[dict[ObjectKey, str], dict[ObjectKey, str]]:
    """
    Return the objects that the limits of the source keep, each with the reason: those
    that are held, and those that are only delayed.

    An object that was held stays held until an operator approves its prune, even if the
    source has gained objects since.

    An object is delayed if the limits permit the present deletes, but not together with
    objects that are blocked only for a moment: otherwise, the objects could leave few
    by few. When the others can be deleted too, or have another owner, the limits decide
    again.

    Objects that *commit* has deleted before count, too, and so do the objects that an
    interrupted execution has deleted.
    """
    entries = inventory.entries
    unsigned = {one.key for one in leaving if not _is_proven(one, inventory)}
    going = {one.key for one in leaving if one.verb is Verb.PRUNE}
    held = {key: entries[key].held for key in going if entries[key].held}
    others = [key for key in going if key not in held]
    # Only the cluster and other agents, but no guard, have blocked objects so far.
    waiting = {
        one.key
        for one in leaving
        if one.verb is Verb.BLOCK
        and one.key not in unsigned
        and not entries[one.key].held
    }
    # Objects that no longer exist, or never existed, must not lower the share either;
    # an object that agentk cannot see may never have existed.
    gone = {one.key for one in leaving if one.verb is Verb.FORGET or one.live is None}
    gone = gone.union(never, unsigned)
    # Neither must objects of Git whose entries other clients may have written.
    there = {
        key
        for key, one in entries.items()
        if one.is_signed and not one.held and key not in gone
    }
    delayed: dict[ObjectKey, str] = {}
    was = inventory.default_namespace
    if others and inventory.of_other:
        why = (
            f"another agentk ({inventory.of_other}) applied this: approve it if this "
            "agentk replaces that one"
        )
    elif others and was not in ("", settings.default_namespace):
        why = (
            f"default_namespace was {was} and is {settings.default_namespace} now: "
            "the objects in the cluster would be deleted"
        )
    else:
        signed = sum(key not in unsigned for key in others)
        begun = inventory.begun.besides(commit, {*others} | waiting) if signed else 0
        before = f", with {begun} that were deleted before" if begun else ""
        deletes, existing = signed + begun, len(there) + begun
        why = guard_of_set(deletes, existing, wanted, settings.limits)
        why = why and f"{why}{before}"
        held |= dict.fromkeys(unsigned.intersection(others), UNSIGNED)
        total = guard_of_set(
            deletes + len(waiting),
            len(there | waiting) + begun,
            wanted,
            settings.limits,
        )
        if total and signed:
            total = f"{total}, with {len(waiting)} that are blocked for other reasons"
            delayed = dict.fromkeys(others, total)
    return dict.fromkeys(others, why) | held if why else held, delayed


async def _guarded(
    client: IKubernetesClient,
    leaving: Iterable[Action],
    held: Mapping[ObjectKey, str],
    settings: SourceSettings,
) -> list[Action]:
    """
    Return the actions, with BLOCK instead of PRUNE where a prune guard prevents the
    delete.
    """
    found = [
        attrs.evolve(one, verb=Verb.BLOCK, reason=held[one.key])
        if one.key in held
        else one
        for one in leaving
    ]
    going = {one.key for one in found if one.verb is Verb.PRUNE}

    async def guarded(action: Action) -> Action:
        if action.verb is not Verb.PRUNE or action.live is None:
            return action
        owner = settings.inventory_id
        reason = await guard_of_object(client, action.live, owner, going.__contains__)
        if not reason:
            return action
        return attrs.evolve(action, verb=Verb.BLOCK, reason=reason)

    return [await guarded(one) for one in found]


def _leaving_order(leaving: Iterable[Action]) -> Order:
    manifests = [
        Manifest(one.key, one.live, Origin("the cluster"))
        for one in leaving
        if one.verb is Verb.PRUNE and one.live is not None
    ]
    return _order_of_some(manifests)


def _order_of_some(manifests: Collection[Manifest]) -> Order:
    # Ignore references to other objects: a problem with waves and references must
    # neither keep an object nor lose the order of the others.
    order = order_of(manifests, strict=False)
    if order.problems:
        order = order_of([_plain(one) for one in manifests])
    return order


def _plain(manifest: Manifest) -> Manifest:
    """
    Return a manifest without annotations, so that it depends only on its Namespace and
    its definition.
    """
    metadata = {**manifest.object["metadata"], "annotations": None}
    return attrs.evolve(manifest, object={**manifest.object, "metadata": metadata})
