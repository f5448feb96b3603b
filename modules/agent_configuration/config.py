"""``agent.configuration`` in kas' configuration file: repositories, period, size."""

from __future__ import annotations

import attrs

from modules.agent_configuration.schema import ConfigurationFile
from tunnel.api import RepositorySettings, is_period
from tunnel.config import Duration, Size, field

__all__ = ["AgentConfigurationSettings"]

#: Maximum bytes of a configuration file, because the parser of `tunnel.config` does not
#: accept longer files.
MAX_FILE = 1024 * 1024


def _is_size(instance: object, attribute: object, value: int) -> None:
    if not 0 < value <= MAX_FILE:
        raise ValueError(f"must be more than 0 and at most {MAX_FILE // 1024}KiB")


@attrs.frozen(kw_only=True)
class AgentConfigurationSettings:
    """``agent.configuration``."""

    poll_period: Duration = field(
        default=300.0,
        doc="period of checks of a repository; push notifications cause one at once",
        validator=is_period,
    )
    max_configuration_file_size: Size = field(
        default=ConfigurationFile.MAX_BYTES,
        doc="bytes of one configuration file",
        validator=_is_size,
    )
    repositories: dict[str, RepositorySettings] = field(
        factory=dict,
        doc="which have agents' configuration; the first that has an agent counts",
    )
