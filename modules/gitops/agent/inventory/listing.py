"""
Reading of many objects of a kind with one list request, if this takes less work than
single requests.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import attrs

from modules.gitops.agent.inventory.inventory import LABEL
from modules.gitops.agent.inventory.own_secret import OWN_LABEL
from modules.gitops.agent.objects.differences import owned_fields
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import (
    claimed_by,
    engine_of,
    given_by,
    owner_of,
)
from tunnel.api import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.errors import CallError
from tunnel.toolkit.parallel import in_parallel

__all__ = ["Seen", "list_where_many"]

#: Minimum number of objects of a kind in a Namespace for a list request.
MANY = 5

#: Number of objects in one page, and maximum number of pages for each wanted object: a
#: page costs the API server about as much as 20 single requests.
PAGE, PAGES_EACH = 500, 1 / 20


@attrs.frozen(eq=False)
class Seen:
    """
    Facts about a live object that a plan needs; thousands of whole objects would not
    fit into memory.

    :ivar owner: the inventory that owns the object; empty without an owner.
    :ivar is_bookkeeping: whether the object is one of agentk's own records, which
        belong to no source.
    :ivar claimed_by: the result of `claimed_by`.
    :ivar given_by: the result of `given_by`.
    :ivar engine: the other engine that applies the object, as in `engine_of`.
    :ivar owned: the result of `owned_fields`.
    """

    uid: str
    version: str
    owner: str
    claimed_by: str
    is_bookkeeping: bool
    engine: str
    owned: str
    given_by: str = ""

    @classmethod
    def of(cls, live: KubernetesObject) -> Seen:
        """Return the facts about *live*."""
        metadata = live["metadata"]
        return cls(
            metadata.get("uid", ""),
            metadata.get("resourceVersion", ""),
            owner_of(live),
            claimed_by(live),
            bool({LABEL, OWN_LABEL} & (metadata.get("labels") or {}).keys()),
            engine_of(live),
            owned_fields(metadata, FIELD_MANAGER),
            given_by(live),
        )


_Kind = tuple[KubernetesResource, str]


async def list_where_many(
    client: IKubernetesClient, wanted: Iterable[tuple[KubernetesResource, ObjectKey]]
) -> dict[ObjectKey, Seen | None]:
    """
    List the *wanted* objects of kinds with many wanted objects, and read only their
    ``metadata``.

    :returns: the objects, with None for objects that do not exist.  Objects that are
        missing in the result must be requested one by one.
    """
    kinds: dict[_Kind, set[ObjectKey]] = {}
    for resource, key in wanted:
        kinds.setdefault((resource, key.namespace), set()).add(key)
    found: dict[ObjectKey, Seen | None] = {}
    lists = await in_parallel(
        _listing(client, resource, namespace, keys)
        for (resource, namespace), keys in kinds.items()
        if len(keys) >= MANY and (namespace or not resource.namespaced)
    )
    for one in lists:
        found.update(one)
    return found


def _listing(
    client: IKubernetesClient,
    resource: KubernetesResource,
    namespace: str,
    keys: set[ObjectKey],
) -> Callable[[], Coroutine[Any, Any, dict[ObjectKey, Seen | None]]]:
    names = {key.name: key for key in keys}

    async def read() -> dict[ObjectKey, Seen | None]:
        found: dict[ObjectKey, Seen | None] = dict.fromkeys(keys)
        left = max(1, int(len(keys) * PAGES_EACH))
        pages = client.list(resource, namespace, limit=PAGE, metadata_only=True)
        try:
            async for page in pages:
                for one in page:
                    key = names.get(one["metadata"]["name"])
                    if key is not None:
                        found[key] = Seen.of(one)
                left -= 1
                if len(page) == PAGE and left <= 0:
                    # Most listed objects do not belong to the project.  Objects that
                    # were not listed may still exist.
                    return {key: one for key, one in found.items() if one is not None}
        except (CallError, ValueError):
            # agentk may be allowed to get objects, but not to list them.  Any other
            # failure will occur again when the single objects are requested.
            return {}
        return found

    return read
