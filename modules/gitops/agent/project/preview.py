"""
Computation of the effects of a plan, for each object and field, without changing the
cluster.

The API server responds to a dry run with the resulting object, after defaulting and
admission.  A preview shows live values only of the source's own objects, because a
commit may name any object.  It does not compare a changed Secret with the live Secret,
because the comparison could confirm a guess of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import attrs

from modules.gitops.agent.apply.refusal import words_of, words_of_foreign
from modules.gitops.agent.apply.server_side_apply import marked
from modules.gitops.agent.drift.drift import Drift
from modules.gitops.agent.objects.differences import MASK, ChangedField, changed_fields
from modules.gitops.agent.objects.error_statuses import AWAY
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import (
    Manifest,
    ObjectKey,
    Origin,
    SourceProblem,
)
from modules.gitops.agent.plan.conflicts import since_when
from modules.gitops.agent.plan.plan import Action, Plan, SourceSettings, Verb
from modules.gitops.agent.plan.recreate import why_not_recreated
from modules.gitops.wire.effect import Effect
from tunnel.api import IKubernetesClient, KubernetesObject
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel

__all__ = [
    "ObjectPreview",
    "Preview",
    "below",
    "preview_of",
    "with_drift",
]


#: Effects on an object that was removed from Git, by the verb of the plan.
_LEAVING = {
    Verb.PRUNE: Effect.PRUNE,
    Verb.DETACH: Effect.DETACH,
    Verb.FORGET: Effect.FORGET,
    Verb.BLOCK: Effect.BLOCKED,
}


@attrs.frozen
class ObjectPreview:
    """
    Effect of a commit on one object.

    :ivar fields: the differences; ``wanted`` is the value after the change, ``live``
        the value before.
    :ivar more: the number of further differences.
    :ivar drift: changes by other clients that are reverted.
    """

    key: ObjectKey
    effect: Effect
    reason: str = ""
    origin: Origin | None = None
    fields: tuple[ChangedField, ...] = ()
    more: int = 0
    drift: Drift | None = None


@attrs.frozen
class Preview:
    """
    Effects of a commit on all objects.

    :ivar problems: why agentk would not apply the commit; empty if agentk would apply
        it.
    """

    commit: str
    problems: tuple[SourceProblem, ...] = ()
    objects: tuple[ObjectPreview, ...] = ()


#: Difference shown for a Secret that is not compared.
_CONTENT = (ChangedField("/data", MASK, MASK),)


def below(plan: Plan, path: str, origins: Callable[[ObjectKey], Origin | None]) -> Plan:
    """
    Return the part of *plan* whose objects are in the file *path*, or below the folder
    *path*.

    :param origins: returns the former position of an object that was removed from Git.
    """
    path = path.strip("/")

    def is_there(key: ObjectKey, action: Action) -> bool:
        manifest = action.manifest
        origin = origins(key) if manifest is None else manifest.origin
        if origin is None:
            return False
        return origin.file == path or origin.file.startswith(f"{path}/")

    return attrs.evolve(
        plan,
        wanted={key: one for key, one in plan.wanted.items() if is_there(key, one)},
        leaving={key: one for key, one in plan.leaving.items() if is_there(key, one)},
        whole=False,
    )


def with_drift(
    found: ObjectPreview, present: Mapping[ObjectKey, Drift]
) -> ObjectPreview:
    """
    Add the object's drift to its preview if the commit would revert some of the drift.
    """
    drift = present.get(found.key)
    if drift is None or found.effect is Effect.NONE:
        return found
    if found.effect is Effect.CHANGE:
        paths = {one.path for one in drift.fields}
        # If the drifted fields are unknown, the commit may change them.
        if paths.isdisjoint(one.path for one in found.fields) and paths:
            return found
    return attrs.evolve(found, drift=drift)


async def preview_of(
    client: IKubernetesClient,
    plan: Plan,
    settings: SourceSettings,
    is_of_others: Callable[[Manifest], bool] = lambda manifest: False,
    was_applied: Callable[[Manifest], bool] = lambda manifest: False,
) -> list[ObjectPreview]:
    """
    Return the effects on all objects, in the order of their names.

    :param is_of_others: see `Drifts.is_of_others`.
    :param was_applied: returns whether this manifest was applied last.
    :raises CallError: if the API server is unavailable.
    """
    wanted = await in_parallel(
        _looking(client, plan, settings, is_of_others, was_applied, action)
        for action in plan.wanted.values()
    )
    leaving = [
        ObjectPreview(one.key, _LEAVING[one.verb], one.reason)
        for one in plan.leaving.values()
    ]
    return sorted([*wanted, *leaving], key=lambda one: one.key)


def _looking(
    client: IKubernetesClient,
    plan: Plan,
    settings: SourceSettings,
    is_of_others: Callable[[Manifest], bool],
    was_applied: Callable[[Manifest], bool],
    action: Action,
) -> Callable[[], Coroutine[Any, Any, ObjectPreview]]:
    manifest = action.manifest
    assert manifest is not None

    def came(effect: Effect, reason: str = "", **more: Any) -> ObjectPreview:
        return ObjectPreview(action.key, effect, reason, manifest.origin, **more)

    # Do not show live values if another source or no source owns the object, because
    # the author of a commit may name any object.
    is_foreign = action.seen is not None and action.seen.owner != settings.inventory_id

    def words(error: CallError) -> str:
        return words_of_foreign(error) if is_foreign else words_of(action.key, error)

    async def look() -> ObjectPreview:
        if action.verb is Verb.REFUSE:
            return came(Effect.REFUSED, action.reason)
        if action.verb is Verb.LEAVE:
            return came(Effect.LEFT)
        is_secret = (action.key.group, action.key.kind) == ("", "Secret")
        if is_secret and action.seen is not None and not was_applied(manifest):
            if action.verb is Verb.ADOPT:
                return came(Effect.ADOPT, action.reason)
            return came(Effect.CHANGE, fields=_CONTENT)
        new = [one for one in plan.order.needs[action.key] if _is_new(plan, one)]
        taken_back = settings.takes_back and is_of_others(manifest)
        force = settings.force or taken_back or action.verb is Verb.ADOPT
        try:
            after = await client.apply(
                marked(manifest, settings.inventory_id, action.uid),
                field_manager=FIELD_MANAGER,
                force=force,
                dry_run=True,
            )
        except CallError as error:
            if error.status in AWAY:
                raise CallError(error.status, words(error)) from None
            if error.status is Status.NOT_FOUND and new:
                names = ", ".join(map(str, sorted(new)))
                return came(
                    Effect.UNKNOWN, f"the objects that it needs are new, too: {names}"
                )
            if "does not support dry run" in error.message:
                return came(Effect.UNKNOWN, words(error))
            why: str | None = None
            if action.verb is Verb.APPLY and not is_foreign:
                wanted = marked(manifest, settings.inventory_id, "")
                why = await why_not_recreated(
                    client, manifest, wanted, error, FIELD_MANAGER
                )
            said = words(error)
            if why == "":
                return came(Effect.RECREATE, said)
            if action.verb is Verb.APPLY and not is_foreign:
                said += await since_when(client, manifest, error)
            return came(Effect.DENIED, f"{said}: {why}" if why else said)
        if action.verb is Verb.CREATE:
            return came(Effect.CREATE)
        if action.verb is Verb.ADOPT:
            return came(Effect.ADOPT, action.reason)
        try:
            resource = await client.resource(manifest.api_version, action.key.kind)
            before = await live_object(client, resource, action.key)
        except CallError as error:
            if error.status in AWAY:
                raise CallError(error.status, words(error)) from None
            return came(Effect.UNKNOWN, words(error))
        if before is None or not _is_same(before, after):
            return came(Effect.UNKNOWN, "it is changing right now")
        found, more = changed_fields(action.key, after, before)
        if not found:
            return came(Effect.NONE)
        fields = tuple(_masked(field) if is_foreign else field for _, field in found)
        return came(Effect.CHANGE, fields=fields, more=more)

    return look


def _masked(field: ChangedField) -> ChangedField:
    return attrs.evolve(
        field, wanted=MASK if field.wanted else "", live=MASK if field.live else ""
    )


def _is_new(plan: Plan, key: ObjectKey) -> bool:
    action = plan.wanted.get(key)
    return action is not None and action.verb is Verb.CREATE


def _is_same(before: KubernetesObject, after: KubernetesObject) -> bool:
    uids = {one["metadata"].get("uid", "") for one in (before, after)}
    return len(uids) == 1
