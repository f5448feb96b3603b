"""``gitops`` in the agent's configuration file: GitLab's keys, and ours beside."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from tunnel.config import Duration, Invalid, field

__all__ = ["GitopsSection", "ManifestPath", "ManifestProject", "ManifestRef"]

#: Projects of one agent: as many as GitLab has.
MAX_PROJECTS = 500

#: Which files a project without ``paths`` has.
EVERYTHING = "**/*.{yaml,yml,json}"


def _not_empty(instance: object, attribute: object, value: str) -> None:
    if not value:
        raise ValueError("must not be empty")


def _at_most(instance: object, attribute: object, value: tuple[Any, ...]) -> None:
    if len(value) > MAX_PROJECTS:
        raise ValueError(f"at most {MAX_PROJECTS} entries, here are {len(value)}")


def _is_share(instance: object, attribute: object, value: float) -> None:
    if not 0 <= value <= 100:
        raise ValueError("must be from 0 to 100")


def _is_count(instance: object, attribute: object, value: int) -> None:
    if value < 0:
        raise ValueError("must not be below 0")


@attrs.frozen(kw_only=True)
class ManifestRef:
    """``ref`` of a manifest project."""

    tag: str | None = field(default=None, doc="name of a tag")
    branch: str | None = field(default=None, doc="name of a branch")
    commit: str | None = field(default=None, doc="id of a commit")

    def __attrs_post_init__(self) -> None:
        found = [name for name in ("tag", "branch", "commit") if getattr(self, name)]
        if len(found) > 1:
            raise Invalid("only one of tag, branch, commit can be here", found[1])
        if not found:
            raise Invalid("one of tag, branch, commit has to be here")


@attrs.frozen(kw_only=True)
class ManifestPath:
    """One of ``paths`` of a manifest project."""

    glob: str = field(doc="which files, such as /prod/**/*.yaml", validator=_not_empty)


@attrs.frozen(kw_only=True)
class PruneLimits:
    """``prune_limits`` of a manifest project: what would go beyond them waits."""

    percent: float = field(
        default=50.0,
        doc="of the objects that the project has in the cluster; up to three always go",
        validator=_is_share,
    )
    count: int = field(default=100, doc="objects", validator=_is_count)


@attrs.frozen(kw_only=True)
class ManifestProject:
    """
    One of ``gitops.manifest_projects``.

    Source of names and defaults: GitLab's agent 16, pkg/agentcfg; *prune_limits* and
    *conflicts* are ours.
    """

    id: str = field(default="", doc="full path; empty: the project of this file")
    ref: ManifestRef | None = field(default=None, doc="which commit; default branch")
    default_namespace: str = field(default="default", doc="of objects without one")
    paths: tuple[ManifestPath, ...] = field(default=(), doc="which files")
    reconcile_timeout: Duration = field(default=3600.0, doc="until objects are current")
    dry_run_strategy: Literal["none", "client", "server"] = field(
        default="none", doc="whether anything is changed"
    )
    prune: bool = field(default=True, doc="whether what left Git leaves the cluster")
    prune_timeout: Duration = field(default=3600.0, doc="until it is gone")
    prune_propagation_policy: Literal["orphan", "background", "foreground"] = field(
        default="foreground", doc="what becomes of what it owned"
    )
    prune_limits: PruneLimits = field(
        factory=PruneLimits, doc="how much may go with one commit unasked"
    )
    inventory_policy: Literal["must_match", "adopt_if_no_inventory", "adopt_all"] = (
        field(default="must_match", doc="which objects may be taken over")
    )
    conflicts: Literal["fail", "force"] = field(
        default="fail", doc="what becomes of fields that others have set"
    )

    @property
    def globs(self) -> tuple[str, ...]:
        """Which files."""
        return tuple(one.glob for one in self.paths) or (EVERYTHING,)


@attrs.frozen(kw_only=True)
class GitopsSection:
    """``gitops``."""

    manifest_projects: tuple[ManifestProject, ...] = field(
        default=(), doc="projects with manifests", validator=_at_most
    )

    def __attrs_post_init__(self) -> None:
        ids = [one.id for one in self.manifest_projects]
        twice = next((one for one in ids if ids.count(one) > 1), None)
        if twice is not None:
            raise Invalid(f"the project {twice!r} is here twice", "manifest_projects")
