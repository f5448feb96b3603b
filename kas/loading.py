"""From a configuration file to modules that can be made, with all problems at once."""

from __future__ import annotations

from pathlib import Path

from kas.config import KasConfiguration, read_configuration_file
from tunnel.config import PartlyRead, Section
from tunnel.hosting import Prepared, load_modules
from tunnel.plugin import ServerModule

__all__ = ["load"]

# Where GitLab's kas has it; ``modules.kubernetes_api`` is the same section.
_KUBERNETES_API = "kubernetes_api"
_TRACKER = "agent_tracker"


def load(file: str | Path | None) -> tuple[KasConfiguration, list[Prepared]]:
    """
    What is in *file* (None: the defaults), and the modules that it asks for.

    :raises ConfigurationError: with every problem of the file and of all modules; those
        of modules are told whatever is wrong elsewhere in the file.
    """
    problems: tuple[str, ...] = ()
    configuration = KasConfiguration()
    try:
        configuration = read_configuration_file(file)
        sections = dict(configuration.modules)
        proxy = configuration.agent.kubernetes_api
    except PartlyRead as error:
        problems = error.problems
        sections = error.below("modules")
        proxy = error.sections.get(f"agent.{_KUBERNETES_API}")
    if proxy is not None:
        sections[_KUBERNETES_API] = proxy
    if configuration.api is not None:
        # It needs no section: who configures the external API wants it answered.
        sections.setdefault(_TRACKER, Section.empty(f"modules.{_TRACKER}"))
    return configuration, load_modules(ServerModule, sections, problems)
