"""
The section ``gitops`` of the agent's configuration file: GitLab's keys and additional
keys.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Literal

import attrs

from modules.gitops.wire.commit_id import COMMIT
from tunnel.config import Duration, Invalid, field, nearest
from tunnel.toolkit.texts import DNS_LABEL, DNS_SUBDOMAIN

__all__ = [
    "GitopsSection",
    "ManifestPath",
    "ManifestProject",
    "ManifestRef",
    "ReceiverObject",
    "ReceiverSettings",
    "is_namespace",
]

#: Maximum number of projects of one agent, which is also GitLab's limit.
MAX_PROJECTS = 500


#: Number of hexadecimal characters of `ManifestProject.selection`.
SELECTION = 16

#: Glob of the files of a project without ``paths``.
EVERYTHING = "**/*.{yaml,yml,json}"


def _not_empty(instance: object, attribute: object, value: str) -> None:
    if not value:
        raise ValueError("must not be empty")


def _at_most(instance: object, attribute: object, value: tuple[Any, ...]) -> None:
    if len(value) > MAX_PROJECTS:
        raise ValueError(
            f"has {len(value)} entries; at most {MAX_PROJECTS} are allowed"
        )


def _is_share(instance: object, attribute: object, value: float) -> None:
    if not 0 <= value <= 100:
        raise ValueError("must be from 0 to 100")


def _is_count(instance: object, attribute: object, value: int) -> None:
    if value < 0:
        raise ValueError("must not be below 0")


def _is_project_name(instance: object, attribute: object, value: str) -> None:
    if value and re.fullmatch(r"[A-Za-z0-9][-\w.]{0,62}", value, re.ASCII) is None:
        raise ValueError(
            "must have 1 to 63 letters, digits, '-', '_' and '.', and begin with a "
            "letter or digit"
        )


def _is_commit(instance: object, attribute: object, value: str | None) -> None:
    # An empty value names no commit, as in GitLab's file.
    if value and COMMIT.fullmatch(value) is None:
        raise ValueError(
            "must be a full commit id, 40 or 64 hexadecimal digits: 'git rev-parse "
            "BRANCH' prints it"
        )


@attrs.frozen(kw_only=True)
class ManifestRef:
    """``ref`` of a manifest project."""

    tag: str | None = field(default=None, doc="name of a tag")
    branch: str | None = field(default=None, doc="name of a branch")
    commit: str | None = field(
        default=None, doc="the full id of a commit", validator=_is_commit
    )

    def __attrs_post_init__(self) -> None:
        found = [name for name in ("tag", "branch", "commit") if getattr(self, name)]
        if len(found) > 1:
            raise Invalid("only one of tag, branch, commit is allowed", found[1])
        if not found:
            raise Invalid("one of tag, branch, commit is required")


@attrs.frozen(kw_only=True)
class ManifestPath:
    """One entry of ``paths`` of a manifest project."""

    glob: str = field(
        doc="files to apply, such as /prod/**/*.yaml", validator=_not_empty
    )


def _is_secret(instance: object, attribute: object, value: str) -> None:
    if re.fullmatch(rf"{DNS_LABEL}/{DNS_SUBDOMAIN}", value) is None:
        raise ValueError("must be namespace/name of a Secret")


def is_namespace(instance: object, attribute: object, value: str) -> None:
    """Validate the name of a Namespace."""
    if re.fullmatch(DNS_LABEL, value) is None:
        raise ValueError(
            "must be the name of a Namespace: at most 63 lower-case letters, digits "
            "and '-'"
        )


def _is_account(instance: object, attribute: object, value: str) -> None:
    if value and re.fullmatch(rf"{DNS_LABEL}/{DNS_SUBDOMAIN}", value) is None:
        raise ValueError("must be namespace/name of a ServiceAccount")


@attrs.frozen(kw_only=True)
class DecryptionSettings:
    """``decryption`` of a manifest project, for Secrets that SOPS encrypted."""

    secret: str = field(
        doc="namespace/name of the Secret with the age keys, each named NAME.agekey",
        validator=_is_secret,
    )


@attrs.frozen(kw_only=True)
class PruneLimits:
    """``prune_limits`` of a manifest project: larger prunes wait for an approval."""

    percent: float = field(
        default=50.0,
        doc=(
            "share of the project's objects in the cluster; three objects may always "
            "be pruned"
        ),
        validator=_is_share,
    )
    count: int = field(default=100, doc="objects", validator=_is_count)


def _are_pointers(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    if not value:
        raise ValueError("must name a field, such as /spec/replicas")
    for one in value:
        _check_pointer(one, "/spec/replicas")


def _check_pointer(one: str, such_as: str) -> None:
    """
    Check a JSON pointer.

    :raises ValueError: if the pointer is invalid, or leads to a field that may not be
        changed.
    """
    if not one.startswith("/") or one == "/":
        raise ValueError(f"{one!r} is not a JSON pointer, such as {such_as}")
    if one.split("/")[1] in ("apiVersion", "kind") or one in _NAMES:
        raise ValueError(f"{one!r} identifies the object and cannot be ignored")


def _is_field(instance: object, attribute: object, value: str) -> None:
    if not value:
        return
    _check_pointer(value, "/spec/ref/commit")
    parts = value.split("/")[1:]
    if parts[0] == "metadata":
        raise ValueError("must not be in metadata: use 'annotation' for an annotation")
    if not all(parts) or any(one.isdecimal() or one == "-" for one in parts):
        raise ValueError("must name fields only, not an item of a list")


#: Pointers to fields that identify an object.
_NAMES = ("/metadata", "/metadata/name", "/metadata/namespace")


@attrs.frozen(kw_only=True)
class IgnoredFields:
    """One entry of ``drift.ignore`` of a manifest project."""

    fields: tuple[str, ...] = field(
        doc="JSON pointers, such as /spec/replicas", validator=_are_pointers
    )
    kind: str = field(default="", doc="kind of the objects; empty for every kind")
    name: str = field(default="*", doc="name of the objects, with * and ?")

    def has(self, kind: str, name: str) -> bool:
        """Return whether the entry applies to an object."""
        return self.kind in ("", kind) and fnmatchcase(name, self.name)


def _is_inside(instance: object, attribute: object, value: str) -> None:
    parts = value.split("/")
    if value.startswith(("/", "-")) or ".." in parts or "\0" in value:
        raise ValueError(f"{value!r} is not a path inside the repository")


def _are_inside(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    for one in value:
        _is_inside(instance, attribute, one)
        # Refuse this path, because Helm would parse it as several files, which may be
        # anywhere on the machine.
        if "," in one or '"' in one:
            raise ValueError(
                f"{one!r} has a comma or quotation mark, which helm splits"
            )


def _is_release(instance: object, attribute: object, value: str) -> None:
    if value and re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?", value) is None:
        raise ValueError("must be at most 53 lower-case letters, digits and '-'")


@attrs.frozen(kw_only=True)
class SourceKind:
    """
    ``source`` of a manifest project: the program that makes its manifests.

    All keys except *kind* and *path* apply only to Helm.
    """

    kind: Literal["plain", "kustomize", "helm"] = field(
        default="plain", doc="files as they are, a kustomization, or a chart"
    )
    path: str = field(
        default="", doc="folder of the kustomization or chart", validator=_is_inside
    )
    release_name: str = field(
        default="",
        doc="name of the chart's folder; default: the last part of path",
        validator=_is_release,
    )
    namespace: str = field(
        default="",
        doc="namespace of the release; default: default_namespace",
        validator=_is_release,
    )
    values: str = field(
        default="", doc="values as YAML text; they override values_files"
    )
    values_files: tuple[str, ...] = field(
        default=(), doc="files of the repository with values", validator=_are_inside
    )
    hooks: Literal["refuse", "skip"] = field(
        default="refuse", doc="how to treat a chart's hooks, except tests"
    )
    lookup: Literal["refuse", "empty"] = field(
        default="refuse", doc="how to treat templates that read from the cluster"
    )

    def __attrs_post_init__(self) -> None:
        path = posixpath.normpath(self.path.strip("/"))
        object.__setattr__(self, "path", "" if path == "." else path)


@attrs.frozen(kw_only=True)
class DriftSettings:
    """``drift`` of a manifest project."""

    mode: Literal["repair", "report", "off"] = field(
        default="repair", doc="how to treat objects that other clients change"
    )
    ignore: tuple[IgnoredFields, ...] = field(
        default=(), doc="fields that are neither applied nor compared"
    )


@attrs.frozen(kw_only=True)
class ManifestProject:
    """
    One entry of ``gitops.manifest_projects``.

    The names and defaults are those of GitLab's agent 16 (pkg/agentcfg), except *name*,
    *source*, *prune_limits*, *service_account*, *decryption*, *depends_on*,
    *conflicts*, *keep_states* and *drift*.
    """

    id: str = field(default="", doc="full path; empty: the project of this file")
    name: str = field(
        default="",
        doc=(
            "name that differs from other projects of the same repository; default: "
            "its id"
        ),
        validator=_is_project_name,
    )
    ref: ManifestRef | None = field(
        default=None, doc="the commit to apply; default: the default branch"
    )
    default_namespace: str = field(
        default="default",
        doc="namespace of objects that do not name one",
        validator=is_namespace,
    )
    paths: tuple[ManifestPath, ...] = field(default=(), doc="which files")
    source: SourceKind = field(factory=SourceKind, doc="how the manifests are made")
    reconcile_timeout: Duration = field(
        default=3600.0, doc="maximum wait until objects are current; 0: no wait"
    )
    dry_run_strategy: Literal["none", "client", "server"] = field(
        default="none", doc="whether to report changes only"
    )
    prune: bool = field(default=True, doc="whether objects that left Git are deleted")
    prune_timeout: Duration = field(
        default=3600.0, doc="maximum wait until deleted objects are gone; 0: no wait"
    )
    prune_propagation_policy: Literal["orphan", "background", "foreground"] = field(
        default="foreground", doc="what happens to the dependents of a pruned object"
    )
    prune_limits: PruneLimits = field(
        factory=PruneLimits,
        doc="limits on the objects that one commit may prune without an approval",
    )
    inventory_policy: Literal["must_match", "adopt_if_no_inventory", "adopt_all"] = (
        field(default="must_match", doc="objects that may be taken over")
    )
    service_account: str = field(
        default="",
        doc=(
            "namespace/name of the account that reads and changes objects; default: "
            "agentk's own"
        ),
        validator=_is_account,
    )
    decryption: DecryptionSettings | None = field(
        default=None,
        doc=(
            "keys for Secrets encrypted with SOPS; without them such Secrets are "
            "refused"
        ),
    )
    depends_on: tuple[str, ...] = field(
        default=(), doc="names of projects that must be current first"
    )
    conflicts: Literal["fail", "force"] = field(
        default="fail", doc="how to treat fields that other managers have set"
    )
    keep_states: Literal["without_secrets", "all", "none"] = field(
        default="without_secrets",
        doc="which objects are backed up before they are deleted or taken over",
    )
    drift: DriftSettings = field(
        factory=DriftSettings,
        doc="how to treat changes by other clients to applied objects",
    )

    @property
    def label(self) -> str:
        """Name of the project, unique among the projects of the agent."""
        return self.name or self.id

    @property
    def globs(self) -> tuple[str, ...]:
        """Globs that select the files of the project."""
        found = tuple(one.glob for one in self.paths)
        every = EVERYTHING if self.source.kind == "plain" else "**/*"
        return found or (every,)

    @property
    def selection(self) -> str:
        """Digest of the settings that select the objects of the project in Git."""
        said = self.id, self.ref, self.globs, self.source, self.default_namespace
        return sha256(repr(said).encode()).hexdigest()[:SELECTION]


def _is_annotation(instance: object, attribute: object, value: str) -> None:
    if value and re.fullmatch(rf"{DNS_SUBDOMAIN}/[A-Za-z0-9][-\w.]*", value) is None:
        raise ValueError("must be the full name of an annotation, example.org/name")


@attrs.frozen(kw_only=True)
class ReceiverObject:
    """One entry of ``objects`` of a receiver."""

    api_version: str = field(doc="such as source.toolkit.fluxcd.io/v1")
    kind: str = field(doc="such as GitRepository", validator=_not_empty)
    name: str = field(doc="name of the object", validator=_not_empty)
    namespace: str = field(default="", doc="namespace of the object")
    annotation: str = field(
        default="",
        doc="annotation that the commit is written to; default for Flux and Argo CD",
        validator=_is_annotation,
    )
    field: str = field(
        default="",
        doc=(
            "JSON pointer to a field that the commit is written to, instead of an "
            "annotation"
        ),
        validator=_is_field,
    )

    def __attrs_post_init__(self) -> None:
        if self.field:
            if self.annotation:
                why = "'annotation' and 'field' are mutually exclusive"
                raise Invalid(why, "field")
            return
        group, _, _ = self.api_version.rpartition("/")
        known = ""
        if group.endswith(".toolkit.fluxcd.io"):
            known = "reconcile.fluxcd.io/requestedAt"
        elif group == "argoproj.io":
            known = "argocd.argoproj.io/refresh"
        if not self.annotation and not known:
            why = f"kind {self.kind} has no default annotation: set 'annotation' or "
            why += "'field'"
            raise Invalid(why, "annotation")
        object.__setattr__(self, "annotation", self.annotation or known)


def _are_some(instance: object, attribute: object, value: tuple[Any, ...]) -> None:
    if not 0 < len(value) <= MAX_PROJECTS:
        raise ValueError(f"1 to {MAX_PROJECTS} entries are allowed, not {len(value)}")


@attrs.frozen(kw_only=True)
class ReceiverSettings:
    """
    One entry of ``gitops.receivers``: objects of other engines to notify of commits.
    """

    project: str = field(default="", doc="same format as id of a manifest project")
    ref: ManifestRef | None = field(
        default=None, doc="the ref to follow; default: the default branch"
    )
    objects: tuple[ReceiverObject, ...] = field(
        doc="the objects that agentk notifies of each commit", validator=_are_some
    )


@attrs.frozen(kw_only=True)
class GitopsSection:
    """Section ``gitops``."""

    manifest_projects: tuple[ManifestProject, ...] = field(
        default=(), doc="projects with manifests", validator=_at_most
    )
    receivers: tuple[ReceiverSettings, ...] = field(
        default=(),
        doc="objects of other engines that agentk notifies of commits",
        validator=_at_most,
    )

    def __attrs_post_init__(self) -> None:
        count = sum(len(one.objects) for one in self.receivers)
        if count > MAX_PROJECTS:
            why = f"has {count} objects; at most {MAX_PROJECTS} are allowed"
            raise Invalid(why, "receivers")
        labels = [one.label for one in self.manifest_projects]
        twice = next((one for one in labels if labels.count(one) > 1), None)
        if twice is not None:
            why = f"two projects are called {twice!r}: give one of them another 'name'"
            raise Invalid(why, "manifest_projects")
        needs = {one.label: one.depends_on for one in self.manifest_projects}
        for name, needed in needs.items():
            for other in needed:
                if other not in needs:
                    others = needs.keys() - {name}
                    known = (
                        nearest(other, others) if others else "no other project exists"
                    )
                    why = (
                        f"{name!r} depends on {other!r}, but no project of "
                        f"manifest_projects has that name; {known}"
                    )
                    raise Invalid(why, "manifest_projects")
        if circle := _circle(needs):
            why = f"these depend on each other: {', '.join(map(repr, circle))}"
            raise Invalid(why, "manifest_projects")


def _circle(needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """
    Return the projects that depend on each other in a circle, or that wait for such
    projects; empty if no circle exists.
    """
    left = dict(needs)
    while free := [one for one in left if not any(each in left for each in left[one])]:
        for one in free:
            del left[one]
    return sorted(left)
