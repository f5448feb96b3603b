"""Loader of the objects of a commit: parses its files, or renders them first."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from modules.gitops.agent.objects.manifests import (
    Origin,
    Source,
    SourceProblem,
    read_source,
)
from modules.gitops.agent.source.rendering import (
    Renderer,
    RenderingRefused,
    capabilities_of,
)
from modules.gitops.agent.source.snapshot import Snapshot
from modules.gitops.agent.source.threads import TextThreads
from modules.gitops.wire.settings import ManifestProject, SourceKind
from tunnel.api import IKubernetesClient
from tunnel.errors import CallError, Status

__all__ = ["read_snapshot"]


async def read_snapshot(
    snapshot: Snapshot,
    settings: ManifestProject,
    renderer: Renderer,
    client: IKubernetesClient,
) -> Source:
    """
    Return the objects of a commit, read in a thread, and rendered if configured.

    :raises CallError: if the cluster cannot be reached to render a chart, or all slots
        for rendering are in use.
    """
    kind, files = settings.source, snapshot.files
    if kind.kind == "plain":
        return await renderer.threads.run(read_source, files)
    capabilities = await capabilities_of(client) if kind.kind == "helm" else None
    try:
        made = await renderer.render(
            kind, settings.default_namespace, files, capabilities
        )
    except CallError as error:
        if error.status is Status.UNAVAILABLE:
            raise
        origin = Origin(kind.path or "the root of the repository")
        reasons = (
            error.reasons if isinstance(error, RenderingRefused) else (error.message,)
        )
        refused = tuple(SourceProblem(origin, one) for one in reasons)
        if not isinstance(error, RenderingRefused) or error.made is None:
            return Source((), refused)
        # Report the problems of the rendered objects together with this one.
        source = await _read_made(kind, error.made, renderer.threads)
        return Source((), (*refused, *source.problems))
    return await _read_made(kind, made, renderer.threads)


async def _read_made(
    kind: SourceKind, made: tuple[str, bytes], threads: TextThreads
) -> Source:
    name, text = made
    # The name of a folder may end in ``.json``: a slash after the name keeps it from
    # being read as a JSON file.
    name += "/" * name.endswith(".json")
    source = await threads.run(read_source, ((name, text),))
    hooks = tuple(_hooks(source)) if kind.kind == "helm" else ()
    return attrs.evolve(source, problems=(*source.problems, *hooks))


def _hooks(source: Source) -> Iterator[SourceProblem]:
    """Yield problems for hooks: objects that Helm would apply at another time."""
    for one in source.manifests:
        hook = one.annotations.get("helm.sh/hook", "")
        if hook and not {each.strip() for each in hook.split(",")} <= {"crd-install"}:
            why = (
                f"{one.key} is a hook ({hook[:100]}), which Helm applies at a time "
                "of its own: 'hooks: skip' leaves hooks out"
            )
            yield SourceProblem(one.origin, why)
