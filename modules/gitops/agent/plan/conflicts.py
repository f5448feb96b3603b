"""Explanations of conflicts about fields: which managers own them, and since when."""

from __future__ import annotations

import re

from modules.gitops.agent.objects.differences import writers_named
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import Manifest
from tunnel.api import IKubernetesClient
from tunnel.errors import CallError, Status

__all__ = ["since_when"]

#: Field manager in the API server's message about a conflict.
_MANAGER = re.compile(r'conflicts? with "([^"]{1,128})"')


async def since_when(
    client: IKubernetesClient, manifest: Manifest, refused: CallError
) -> str:
    """
    Return a text about a conflict: when other managers wrote the fields, and the
    remedy.

    :returns: empty if *refused* is not a conflict about fields.
    :raises CallError: if the object cannot be read.
    """
    if refused.status is not Status.ABORTED:
        return ""
    names = set(_MANAGER.findall(refused.message))
    if not names:
        return ""
    resource = await client.resource(manifest.api_version, manifest.key.kind)
    live = await live_object(client, resource, manifest.key)
    found = [] if live is None else writers_named(live, names)
    if not found:
        return ""
    return (
        f"; written by {', '.join(map(str, found))}: leave these fields to them "
        "(drift.ignore, or not in Git), or take them: once with 'kasctl gitops "
        "repair', always with 'conflicts: force'"
    )
