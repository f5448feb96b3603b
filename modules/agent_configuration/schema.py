"""
Schema of an agent's configuration file: the sections that GitLab documents, and the
sections of installed modules.

kas accepts any content of sections that belong only to modules of GitLab
(``container_scanning``, ``remote_development``): these sections change from one version
of GitLab to the next, and kas must not refuse a file because of keys that only those
modules know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import attrs
from twisted.python.reflect import namedAny

from tunnel.config import Invalid, Section, field
from tunnel.errors import ConfigurationError
from tunnel.plugin import AgentModule, GitSection, installed

__all__ = ["ConfigurationFile"]

#: Maximum number of projects or groups in one section, which is also GitLab's limit.
MAX_ENTRIES = 500

_GONE = "a key of old versions of GitLab's agent that has no meaning: remove it"


def _not_empty(instance: object, attribute: object, value: str) -> None:
    if not value:
        raise ValueError("must not be empty")


def _at_most(instance: object, attribute: object, value: tuple[Any, ...]) -> None:
    if len(value) > MAX_ENTRIES:
        raise ValueError(f"has {len(value)} entries; at most {MAX_ENTRIES} are allowed")


def _only_one(instance: Any, names: tuple[str, ...], *, needed: bool) -> None:
    """
    Check that at most one of the keys *names* is set, and that exactly one is set if
    *needed* is true.

    :raises Invalid: if too many keys are set, or a needed key is missing.
    """
    found = [name for name in names if getattr(instance, name) is not None]
    if len(found) > 1:
        raise Invalid(f"only one of {', '.join(found)} is allowed", found[1])
    if needed and not found:
        raise Invalid(f"one of {', '.join(names)} is required")


@attrs.frozen(kw_only=True)
class NoSettings:
    """Value of a key that has an effect without any settings: ``agent: {}``."""


@attrs.frozen(kw_only=True)
class ExtraImpersonation:
    """One entry of ``impersonate.extra``."""

    key: str = field(doc="name of the extra field", validator=_not_empty)
    val: tuple[str, ...] = field(doc="its values")


@attrs.frozen(kw_only=True)
class CiImpersonation:
    """``access_as.impersonate``."""

    username: str = field(doc="as whom the cluster sees jobs", validator=_not_empty)
    groups: tuple[str, ...] = field(default=(), doc="groups of that user")
    uid: str = field(default="", doc="uid of that user")
    extra: tuple[ExtraImpersonation, ...] = field(default=(), doc="more of that user")


@attrs.frozen(kw_only=True)
class CiAccessAs:
    """``access_as`` of ``ci_access``."""

    agent: NoSettings | None = field(default=None, doc="jobs have agentk's own rights")
    impersonate: CiImpersonation | None = field(
        default=None, doc="jobs have the rights of a user"
    )
    ci_job: NoSettings | None = field(
        default=None, doc="jobs act as the user gitlab:ci_job:JOB_ID"
    )

    def __attrs_post_init__(self) -> None:
        _only_one(self, ("agent", "impersonate", "ci_job"), needed=True)


@attrs.frozen(kw_only=True)
class ResourceManagement:
    """``resource_management``."""

    enabled: bool = field(
        default=False,
        doc="whether GitLab makes environments' objects",
        no_effect="this kas does not create objects for GitLab's environments",
    )


@attrs.frozen(kw_only=True)
class CiAccessEntry:
    """One project or group of ``ci_access``."""

    id: str = field(doc="full path of the project or group", validator=_not_empty)
    default_namespace: str = field(default="", doc="of the kubeconfig that jobs get")
    access_as: CiAccessAs | None = field(default=None, doc="with whose rights")
    environments: tuple[str, ...] = field(
        default=(), doc="only jobs of these, such as review/*"
    )
    protected_branches_only: bool = field(
        default=False, doc="only jobs of protected branches"
    )
    resource_management: ResourceManagement | None = field(
        default=None, doc="GitLab's managed resources"
    )


@attrs.frozen(kw_only=True)
class CiAccessInstance:
    """``ci_access.instance``: access for every project."""

    default_namespace: str = field(default="", doc="of the kubeconfig that jobs get")
    access_as: CiAccessAs | None = field(default=None, doc="with whose rights")
    environments: tuple[str, ...] = field(default=(), doc="only jobs of these")
    protected_branches_only: bool = field(
        default=False, doc="only jobs of protected branches"
    )
    resource_management: ResourceManagement | None = field(
        default=None, doc="GitLab's managed resources"
    )


@attrs.frozen(kw_only=True)
class CiAccess:
    """``ci_access``."""

    projects: tuple[CiAccessEntry, ...] = field(
        default=(), doc="projects whose jobs may use the agent", validator=_at_most
    )
    groups: tuple[CiAccessEntry, ...] = field(
        default=(), doc="groups, likewise", validator=_at_most
    )
    instance: CiAccessInstance | None = field(
        default=None, doc="all projects, likewise"
    )


@attrs.frozen(kw_only=True)
class UserAccessAs:
    """``access_as`` of ``user_access``."""

    agent: NoSettings | None = field(default=None, doc="users have agentk's own rights")
    user: NoSettings | None = field(default=None, doc="users have their own rights")

    def __attrs_post_init__(self) -> None:
        _only_one(self, ("agent", "user"), needed=True)


@attrs.frozen(kw_only=True)
class UserAccessEntry:
    """One project or group of ``user_access``."""

    id: str = field(doc="full path of the project or group", validator=_not_empty)


@attrs.frozen(kw_only=True)
class UserAccess:
    """``user_access``."""

    access_as: UserAccessAs | None = field(default=None, doc="with whose rights")
    projects: tuple[UserAccessEntry, ...] = field(
        default=(), doc="projects whose members may use the agent", validator=_at_most
    )
    groups: tuple[UserAccessEntry, ...] = field(
        default=(), doc="groups, likewise", validator=_at_most
    )


@attrs.frozen(kw_only=True)
class AgentLogging:
    """``observability.logging``."""

    level: Literal["debug", "info", "warn", "error"] | None = field(
        default=None, doc="the least important events that agentk logs"
    )
    grpc_level: Literal["debug", "info", "warn", "error"] | None = field(
        default=None,
        doc="known from GitLab's agentk",
        no_effect="agentk does not use a gRPC library",
    )


@attrs.frozen(kw_only=True)
class AgentObservability:
    """``observability``."""

    logging: AgentLogging = field(factory=AgentLogging, doc="logs of agentk")
    google_profiler: Section | None = field(
        default=None,
        doc="known from GitLab's agentk",
        no_effect="agentk has its own profile, observability.profile",
    )


@attrs.frozen(kw_only=True)
class FluxSection:
    """``flux``."""

    webhook_receiver_url: str = field(
        default="http://webhook-receiver.flux-system.svc.cluster.local",
        doc="URL at which agentk notifies Flux of pushes",
    )


@attrs.frozen(kw_only=True)
class _GitLabFile:
    """Sections that GitLab documents, without the sections of installed modules."""

    #: Default maximum bytes of the file.
    MAX_BYTES: ClassVar[int] = 128 * 1024

    #: Parse the file like protojson, because GitLab's kas accepts the same files.
    AS_JSON: ClassVar[bool] = True

    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("cilium", "include", "starboard"), _GONE
    )

    observability: AgentObservability | None = field(default=None, doc="logs of agentk")
    ci_access: CiAccess | None = field(default=None, doc="which CI jobs may use it")
    user_access: UserAccess | None = field(default=None, doc="which users may use it")
    container_scanning: Section | None = field(default=None, doc="image scanning")
    remote_development: Section | None = field(default=None, doc="workspaces")
    flux: FluxSection | None = field(
        default=None, doc="notifications of pushes for Flux"
    )


def file_schema(sections: Iterable[GitSection]) -> type[Any]:
    """
    Return the class of the whole file.

    :param sections: sections of modules.
    :raises ConfigurationError: if a schema cannot be imported or two sections have the
        same name.
    """
    found: dict[str, Any] = {}
    problems = []
    for one in sections:
        if one.name in found:
            problems.append(f"two modules define the section {one.name}")
            continue
        if one.name in attrs.fields_dict(_GitLabFile):
            problems.append(
                f"a module defines the section {one.name}, which GitLab's file has"
            )
            continue
        try:
            schema = namedAny(one.schema)
        except Exception as error:
            problems.append(f"section {one.name}: importing {one.schema}: {error}")
            continue
        found[one.name] = field(default=None, doc=one.doc, type=schema | None)
    if problems:
        raise ConfigurationError(problems)
    return attrs.make_class(
        "ConfigurationFile",
        found,
        bases=(_GitLabFile,),
        frozen=True,
        kw_only=True,
        slots=True,
    )


#: Schema of the whole file, with the sections of installed modules.
ConfigurationFile: Any = file_schema(
    section for plugin in installed(AgentModule) for section in plugin.sections
)
