"""Fields that a project leaves to others: as if Git did not have them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs

from modules.gitops.manifests import Manifest, Source
from modules.gitops.settings import IgnoredFields

__all__ = ["without_ignored"]


def without_ignored(source: Source, ignored: Collection[IgnoredFields]) -> Source:
    """The same objects without the fields that *ignored* names."""
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
                found = _cut(found, path_of(pointer))
    return (
        manifest if found is manifest.object else attrs.evolve(manifest, object=found)
    )


def path_of(pointer: str) -> list[str]:
    """The names in a JSON pointer (RFC 6901)."""
    parts = pointer.split("/")[1:]
    return [one.replace("~1", "/").replace("~0", "~") for one in parts]


def _cut(found: Any, path: list[str]) -> Any:
    """The same value without what is at *path*; itself where there is nothing."""
    name, rest = path[0], path[1:]
    if isinstance(found, dict) and name in found:
        if not rest:
            return {key: one for key, one in found.items() if key != name}
        inner = _cut(found[name], rest)
        return found if inner is found[name] else {**found, name: inner}
    if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
        number = int(name)
        if not rest:
            return [*found[:number], *found[number + 1 :]]
        inner = _cut(found[number], rest)
        if inner is found[number]:
            return found
        return [*found[:number], inner, *found[number + 1 :]]
    return found
