"""``agent.gitops`` of kas' file: which repositories agents may read, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from modules.repositories import RepositorySettings, is_period
from tunnel.config import Duration, Size, field, is_positive

__all__ = ["GitopsSettings"]

#: Bytes of all files of one source at the most: agentk reads them in memory.
MAX_TOTAL = 256 * 1024 * 1024


def _is_size(instance: object, attribute: object, value: int) -> None:
    if not 0 < value <= MAX_TOTAL:
        raise ValueError(f"must be more than 0 and at most {MAX_TOTAL // 1024**2}MiB")


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
    repositories: dict[str, RepositorySettings] = field(
        factory=dict,
        doc="by the names that agents' configuration calls them, besides the projects "
        "of GitLab that agents are registered in",
    )
