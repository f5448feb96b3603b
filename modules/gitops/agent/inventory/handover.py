"""
Handover of objects from one project to another.

A manifest that moves in one commit leaves one project and enters another.  Each of the
two processes the commit independently:

    the old project    keeps the object while another project has it in Git, or has
                       not read this commit and may have it
    the new project    takes it, with any ``inventory_policy``, once the old one
                       has read a commit without it

So the object is never deleted.  A renamed project finds the inventory of its old name,
which no project of the agent has any more, and takes the objects in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

import attrs

from modules.gitops.agent.objects.manifests import Manifest, ObjectKey
from modules.gitops.agent.source.snapshot import Location
from modules.gitops.wire.settings import ManifestProject

__all__ = ["ProjectHandover", "names"]


class _Desired(Protocol):
    """Interface to the commits of a project; see `DesiredCommits`."""

    @property
    def inventory(self) -> str:
        """Id of the project's inventory; empty while the repository is unknown."""

    @property
    def known_commit(self) -> str:
        """Last commit that `has_in_git` knows; empty before the first."""

    @property
    def knows_orders(self) -> bool:
        """Whether `has_in_git` knows the commit that an operator pinned, if any."""

    @property
    def past_commits(self) -> Collection[str]:
        """Earlier commits, as far as known."""

    @property
    def known_since(self) -> float:
        """Time when `known_commit` became known, by a clock that all projects share."""

    @property
    def location(self) -> Location:
        """Ref and repository of the project, as kas resolved them."""

    def contains(self, key: ObjectKey) -> bool:
        """Return whether the commits contain an object."""


class _Status(Protocol):
    @property
    def problems(self) -> list[str]:
        """Descriptions of current problems."""


class _Project(Protocol):
    settings: ManifestProject

    @property
    def name(self) -> str:
        """Name in the configuration."""

    @property
    def desired(self) -> _Desired:
        """Commits of the project."""

    @property
    def status(self) -> _Status:
        """Status of the project."""

    def has_in_git(self, key: ObjectKey) -> bool:
        """
        Return whether the newest commit of the project, or its pinned commit, contains
        an object.
        """

    def others_changed(self) -> None:
        """Check again the objects that wait for other projects."""


@attrs.frozen
class ProjectHandover:
    """
    One project's view of the other projects.

    :param name: the name of the project.
    :param projects: the active projects, by name.
    :param refused: returns why the newest configuration of the agent is not in effect,
        so that some of its projects may not be active; empty if it is in effect.
    """

    _name: str
    _projects: Mapping[str, _Project]
    _refused: Callable[[], Sequence[str]] = tuple

    def stays(self, key: ObjectKey) -> str:
        """
        Return why an object that was removed from this project must not be deleted;
        empty if the object may be deleted.
        """
        for other in self._others():
            if other.has_in_git(key):
                return f"it stays for project {other.name}, which has it in Git"
            if self._may_come_to_have(other):
                return _why_unread(other)
        if refused := self._refused():
            return (
                "it stays, because the agent's configuration in Git is not in effect, "
                "and another project in that configuration may contain the object; "
                f"correct the configuration: {refused[0]}"
            )
        return ""

    def gives(self, key: ObjectKey, owner: str) -> bool | None:
        """
        Return whether the project with the inventory *owner* has given up an object.

        :returns: None if no project of this agent has that inventory.
        """
        own = self._projects.get(self._name)
        for other in self._others():
            if other.desired.inventory == owner:
                behind = own is not None and _is_behind(other, own)
                knows = other.desired.knows_orders and not behind
                # Permissions do not matter: an owner that may not write an object for a
                # while has not given it up.
                return knows and not other.desired.contains(key)
        return None

    def will_read(self, owner: str) -> bool:
        """
        Return whether another project of this agent has not read this project's commit
        yet, and will.

        :param owner: the id of the other project's inventory.
        """
        own = self._projects.get(self._name)
        return own is not None and any(
            other.desired.inventory == owner
            and (not other.desired.knows_orders or _is_behind(other, own))
            for other in self._others()
        )

    @property
    def inventories(self) -> dict[str, str]:
        """Names of the other projects, by the ids of their inventories."""
        return {
            one.desired.inventory: one.name
            for one in self._others()
            if one.desired.inventory
        }

    @property
    def why_incomplete(self) -> str:
        """
        Reason why the inventories of some projects are unknown, so that any inventory
        may belong to them; empty if the inventories of all projects are known.
        """
        for one in tuple(self._projects.values()):
            if not one.desired.inventory:
                why = f"it waits for project {one.name}, whose repository is unknown"
                return _with_problem(why, one)
        return ""

    def changed(self) -> None:
        """
        Notify the other projects that this project has read a commit or taken an
        object.
        """
        for other in self._others():
            other.others_changed()

    def _others(self) -> Iterator[_Project]:
        for name, one in tuple(self._projects.items()):
            if name != self._name:
                yield one

    def _may_come_to_have(self, other: _Project) -> bool:
        own = self._projects.get(self._name)
        if own is None:
            return False
        if not other.desired.known_commit:
            return _may_follow(other, own) and other.desired.location.may_be_in(
                own.desired.location
            )
        if not other.desired.knows_orders:
            return other.desired.location.may_be_in(own.desired.location)
        return _is_behind(other, own)


def _is_behind(other: _Project, own: _Project) -> bool:
    """
    Return whether *other* may not have read the commit that *own* has read.

    Each project skips commits: some were replaced before it read them, and some it
    could not read.  Therefore a commit of *other* that *own* does not know proves
    nothing.
    """
    theirs, ours = other.desired.known_commit, own.desired.known_commit
    if theirs == ours or not _may_follow(other, own):
        return False
    if theirs in own.desired.past_commits:
        # A forced push may have restored a commit that *other* read earlier.
        return True
    if not _follow_same(other, own):
        return False
    # Compare the times, because the ref may have been forced back to a commit that
    # *other* read earlier.
    has_passed = (
        ours in other.desired.past_commits
        and other.desired.known_since >= own.desired.known_since
    )
    return not has_passed


def _follow_same(other: _Project, own: _Project) -> bool:
    """Return whether both certainly follow the same ref of the same repository."""
    theirs, ours = other.desired.location, own.desired.location
    if not ours.repository or theirs.repository != ours.repository:
        return False
    named = ours.ref not in ("", "HEAD") and theirs.ref == ours.ref
    return named or other.settings.ref == own.settings.ref


def _may_follow(other: _Project, own: _Project) -> bool:
    """Return whether it is possible that both projects follow the same ref."""
    return other.settings.ref == own.settings.ref or other.desired.location.may_be_ref(
        own.desired.location
    )


def _why_unread(other: _Project) -> str:
    why = f"project {other.name} has not read this commit, and may contain it"
    return _with_problem(why, other)


def _with_problem(why: str, other: _Project) -> str:
    """Append the first problem of a project to a reason to wait for it."""
    if not other.status.problems:
        return why
    return f"{why} (fix it or remove the project): {other.status.problems[0]}"


def names(
    manifests: Collection[Manifest], namespace: str
) -> Callable[[ObjectKey], bool]:
    """
    Return a function that tells whether *manifests* name an object of the cluster.

    :param namespace: the Namespace of manifests without one.  The function does not
        look up whether a kind is namespaced: an object counts as named if it may be
        named.
    """
    named = {
        (key.group, key.kind, space, key.name)
        for key in (one.key for one in manifests)
        # A namespace in the manifest of a cluster-wide kind is ignored.
        for space in ("", key.namespace or namespace)
    }
    return lambda key: (key.group, key.kind, key.namespace, key.name) in named
