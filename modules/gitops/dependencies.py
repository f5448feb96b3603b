"""Which projects of an agent wait for which others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import attrs

from modules.gitops.settings import ManifestProject

__all__ = ["Dependencies"]


class _Project(Protocol):
    settings: ManifestProject

    @property
    def is_current(self) -> bool:
        """All is in the cluster, and has become what it should."""

    def dependency_worked(self) -> None:
        """One that it needs is done with a commit."""


@attrs.frozen
class Dependencies:
    """
    See the module.

    :param projects: of this agent, by name (`ManifestProject.label`).
    """

    _projects: Mapping[str, _Project]

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of *names* that are not current now."""
        found = ((name, self._projects.get(name)) for name in names)
        return [name for name, one in found if one is None or not one.is_current]

    def is_needed(self, name: str) -> bool:
        """Whether another project waits for this one."""
        return any(name in one.settings.depends_on for one in self._projects.values())

    def worked(self, name: str) -> None:
        """Tell those that wait for it."""
        for one in tuple(self._projects.values()):
            if name in one.settings.depends_on:
                one.dependency_worked()
