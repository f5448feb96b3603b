"""``agent.gitops`` of kas' file: which repositories agents may read, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import attrs

from modules.repositories import RepositorySettings, is_period
from modules.secret_file import read_secret
from tunnel.config import Duration, ExistingFile, Size, field, is_positive

__all__ = ["GitopsSettings", "WebhookSettings"]

#: Webhooks of one kas: each event is posted to all of them.
MAX_WEBHOOKS = 20

#: Bytes of all files of one source at the most: agentk reads them in memory.
MAX_TOTAL = 256 * 1024 * 1024


def _is_size(instance: object, attribute: object, value: int) -> None:
    if not 0 < value <= MAX_TOTAL:
        raise ValueError(f"must be more than 0 and at most {MAX_TOTAL // 1024**2}MiB")


def _is_secret(instance: object, attribute: object, value: Path) -> None:
    read_secret(value)


def _is_address(instance: object, attribute: object, value: str) -> None:
    try:
        url = urlsplit(value)
        port = url.port
    except ValueError:
        # Without what Python says of it: that repeats what stands for the port.
        raise ValueError(
            "this is no URL; write https://alerts.example.org/path"
        ) from None
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise ValueError("write https://alerts.example.org/path")
    if url.username or url.password or not value.isascii():
        raise ValueError("only ASCII, and no user name or password")


def _are_few(instance: object, attribute: object, value: tuple[Any, ...]) -> None:
    if len(value) > MAX_WEBHOOKS:
        raise ValueError(f"at most {MAX_WEBHOOKS} entries, here are {len(value)}")


@attrs.frozen(kw_only=True)
class WebhookSettings:
    """One of ``agent.gitops.webhooks``."""

    url: str = field(doc="what is posted to, http or https", validator=_is_address)
    secret_file: ExistingFile = field(
        doc="what each request is signed with", validator=_is_secret
    )
    agents: tuple[str, ...] = field(
        default=("*",), doc="names of agents, with * for any characters"
    )

    def has(self, agent_name: str) -> bool:
        """Whether it is told of that agent."""
        return any(fnmatchcase(agent_name, one) for one in self.agents)


@attrs.frozen(kw_only=True)
class GitopsSettings:
    """
    ``agent.gitops``.

    Source of names and defaults: GitLab's kas, pkg/kascfg.
    """

    IGNORED_KEYS: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("project_info_cache_ttl", "project_info_cache_error_ttl"),
        "a key of GitLab's kas that changes nothing here",
    )

    poll_period: Duration = field(
        default=300.0,
        doc="between two looks at a branch; a push notification comes at once",
        validator=is_period,
    )
    max_manifest_file_size: Size = field(
        default=5 * 1024**2, doc="bytes of one file", validator=_is_size
    )
    max_total_manifest_file_size: Size = field(
        default=20 * 1024**2, doc="bytes of all files of a source", validator=_is_size
    )
    max_number_of_paths: int = field(
        default=100, doc="globs of a source", validator=is_positive
    )
    max_number_of_files: int = field(
        default=1000,
        doc="files in the folders of a source, matching or not",
        validator=is_positive,
    )
    webhooks: tuple[WebhookSettings, ...] = field(
        default=(),
        doc="what is told of objects that others have changed",
        validator=_are_few,
    )
    repositories: dict[str, RepositorySettings] = field(
        factory=dict,
        doc="by the names that agents' configuration calls them, besides the projects "
        "of GitLab that agents are registered in",
    )
