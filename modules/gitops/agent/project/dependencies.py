"""Dependencies between the projects of an agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import attrs

from modules.gitops.wire.settings import ManifestProject

__all__ = ["Dependencies"]


class _Status(Protocol):
    @property
    def is_current(self) -> bool:
        """Whether all objects of the project are in the cluster and healthy."""


class _Project(Protocol):
    settings: ManifestProject

    @property
    def status(self) -> _Status:
        """Status of the project."""

    def dependency_worked(self) -> None:
        """Note that a project that this project depends on has finished a commit."""


@attrs.frozen
class Dependencies:
    """
    Dependencies between projects.

    :param projects: the projects of this agent, by name (`ManifestProject.label`).
    """

    _projects: Mapping[str, _Project]

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the *names* that are unknown, or whose projects are not current."""
        found = ((name, self._projects.get(name)) for name in names)
        return [name for name, one in found if one is None or not one.status.is_current]

    def is_needed(self, name: str) -> bool:
        """Return whether another project depends on the project *name*."""
        return any(name in one.settings.depends_on for one in self._projects.values())

    def worked(self, name: str) -> None:
        """Notify the projects that depend on the project *name*."""
        for one in tuple(self._projects.values()):
            if name in one.settings.depends_on:
                one.dependency_worked()
