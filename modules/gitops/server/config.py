"""``agent.gitops`` in kas' configuration file: allowed repositories, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import attrs

from tunnel.api import RepositorySettings, agents_match, is_period
from tunnel.config import (
    Duration,
    ExistingFile,
    Size,
    authorities,
    field,
    is_positive,
)
from tunnel.toolkit.secret_file import read_secret
from tunnel.toolkit.urls import is_private

__all__ = [
    "GitopsSettings",
    "MergeRequestSettings",
    "WebhookFormat",
    "WebhookSettings",
]

#: Pattern for every agent, including the agents of all GitLab projects.
EVERY_AGENT = "*"

#: Maximum number of webhooks of kas: each event is posted to all of them.
MAX_WEBHOOKS = 20

#: Maximum bytes of all files of one source: agentk reads them into memory.
MAX_TOTAL = 256 * 1024 * 1024


def _is_size(instance: object, attribute: object, value: int) -> None:
    if not 0 < value <= MAX_TOTAL:
        raise ValueError(f"must be more than 0 and at most {MAX_TOTAL // 1024**2}MiB")


def _is_secret(instance: object, attribute: object, value: Path) -> None:
    read_secret(value)


def _is_address(instance: object, attribute: object, value: str) -> None:
    _check_address(value, "https://alerts.example.org/path")


def _check_address(value: str, example: str) -> None:
    try:
        url = urlsplit(value)
        port = url.port
    except ValueError:
        # Leave out Python's message, because it repeats the text in place of the port.
        raise ValueError(f"this is not a URL; write {example}") from None
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise ValueError(f"write {example}")
    if url.username or url.password or not value.isascii():
        raise ValueError("only ASCII, and no user name or password")


def _is_private_address(instance: object, attribute: object, value: str) -> None:
    _check_address(value, "https://gitlab.example.org")
    if not is_private(value):
        raise ValueError("use https: without it, the token could be read in transit")


def _is_format(instance: Any, attribute: object, value: WebhookFormat) -> None:
    if value is WebhookFormat.GITLAB_ALERT and not is_private(instance.url):
        raise ValueError(
            "url must be https: otherwise the key could be read in transit"
        )


def _are_few(instance: object, attribute: object, value: tuple[Any, ...]) -> None:
    if len(value) > MAX_WEBHOOKS:
        raise ValueError(
            f"has {len(value)} entries; at most {MAX_WEBHOOKS} are allowed"
        )


class WebhookFormat(Enum):
    """Format of the events that kas posts to a webhook."""

    #: Signed events in txkas' own format.
    TXKAS = "txkas"
    #: Format of an "HTTP Endpoint" for the alerts of a GitLab project.
    GITLAB_ALERT = "gitlab_alert"


@attrs.frozen(kw_only=True)
class WebhookSettings:
    """Entry of ``agent.gitops.webhooks``."""

    url: str = field(
        doc="the address for the events, http or https", validator=_is_address
    )
    format: WebhookFormat = field(
        default=WebhookFormat.TXKAS,
        doc="txkas: signed events; gitlab_alert: alerts for the HTTP endpoint of a "
        "GitLab project",
        validator=_is_format,
    )
    secret_file: ExistingFile = field(
        doc="the key that signs requests; for gitlab_alert the authorization key",
        validator=_is_secret,
    )
    ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc="PEM certificates of CAs for the server, in addition to the system's CAs",
        validator=authorities,
    )
    agents: tuple[str, ...] = field(
        default=(EVERY_AGENT,),
        doc="names of agents, with * for any characters; for GitLab's agents <path of "
        "the project>:<name>; '*' alone: every agent",
    )

    def has(self, agent_name: str, project: str | None) -> bool:
        """
        Return whether the webhook receives the events of an agent; *project*: see
        `project_of`.
        """
        if EVERY_AGENT in self.agents:
            return True
        return agents_match(self.agents, agent_name, project)


@attrs.frozen(kw_only=True)
class MergeRequestSettings:
    """Section ``agent.gitops.merge_requests``."""

    gitlab_url: str = field(
        doc="address of GitLab, such as https://gitlab.example.org",
        validator=_is_private_address,
    )
    webhook_secret_file: ExistingFile = field(
        doc="the secret token of GitLab's webhooks that call /gitops/merge-requests",
        validator=_is_secret,
    )
    token_file: ExistingFile = field(
        doc="an access token with the scope api; its user writes the comments",
        validator=_is_secret,
    )
    ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc="PEM certificates of CAs for GitLab, in addition to the system's CAs",
        validator=authorities,
    )
    agents: tuple[str, ...] = field(
        default=(EVERY_AGENT,),
        doc="names of agents that preview, with * for any characters; for GitLab's "
        "agents <path of the project>:<name>; '*' alone: every agent",
    )
    forks: bool = field(
        default=False,
        doc="preview merge requests from forks, too: their authors can see the API "
        "server's messages about any object",
    )

    def has(self, agent_name: str, project: str | None) -> bool:
        """Return whether an agent makes previews; *project*: see `project_of`."""
        if EVERY_AGENT in self.agents:
            return True
        return agents_match(self.agents, agent_name, project)


@attrs.frozen(kw_only=True)
class GitopsSettings:
    """
    Section ``agent.gitops``.

    Source of names and defaults: GitLab's kas, pkg/kascfg.
    """

    IGNORED_KEYS: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("project_info_cache_ttl", "project_info_cache_error_ttl"),
        "a key of GitLab's kas that has no effect here",
    )

    poll_period: Duration = field(
        default=300.0,
        doc="between two checks of a branch; a push notification causes one",
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
        doc="receivers of events about objects that other clients have changed",
        validator=_are_few,
    )
    merge_requests: MergeRequestSettings | None = field(
        default=None,
        doc="comment on GitLab's merge requests with the changes in clusters",
    )
    repositories: dict[str, RepositorySettings] = field(
        factory=dict,
        doc="by their names in agents' configuration, in addition to the GitLab "
        "projects that agents are registered in",
    )
