"""
Removal of fields that a project leaves to other writers, as if Git did not contain
them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs

from modules.gitops.agent.objects.control_plane import without
from modules.gitops.agent.objects.manifests import Manifest, Source
from modules.gitops.wire.settings import IgnoredFields

__all__ = ["without_ignored"]


def without_ignored(source: Source, ignored: Collection[IgnoredFields]) -> Source:
    """Return the source without the fields that *ignored* names."""
    if not ignored:
        return source
    return attrs.evolve(
        source, manifests=tuple(_without(one, ignored) for one in source.manifests)
    )


def _without(manifest: Manifest, ignored: Collection[IgnoredFields]) -> Manifest:
    found: Any = manifest.object
    for one in ignored:
        if one.has(manifest.key.kind, manifest.key.name):
            for pointer in one.fields:
                found = without(found, path_of(pointer))
    return (
        manifest if found is manifest.object else attrs.evolve(manifest, object=found)
    )


def path_of(pointer: str) -> list[str]:
    """Return the names in a JSON pointer (RFC 6901)."""
    parts = pointer.split("/")[1:]
    return [one.replace("~1", "/").replace("~0", "~") for one in parts]
