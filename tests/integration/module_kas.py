"""A kas that stands alone, with a module of the tests in the place of a third party."""

from __future__ import annotations

import os
from pathlib import Path

from tests.integration.processes import ROOT, Process, twistd

_CONFIGURATION = """\
agent:
  listen: {address: "127.0.0.1:0", development_certificate: false}
  kubernetes_api:
    listen: {address: "127.0.0.1:0", development_certificate: false}
observability:
  listen: {address: "127.0.0.1:0"}
modules:
"""


def python_path(*before: Path) -> dict[str, str]:
    """For the environment of a program that imports what is in tests/."""
    known = os.environ.get("PYTHONPATH", "")
    parts = [*map(str, before), str(ROOT), *([known] if known else [])]
    return {"PYTHONPATH": os.pathsep.join(parts)}


class ModuleKas:
    """
    One with a module.

    :param module: its name.
    :param dropin: the plugin that names it.
    :param more: sections for the configuration file, as YAML text.
    """

    def __init__(
        self, folder: Path, module: str, dropin: str, more: str, name: str = "kas"
    ) -> None:
        self.folder = folder
        self.state = folder / f"{name}-state"
        plugins = folder / "twisted" / "plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        (plugins / f"tests_{module}_modules.py").write_text(dropin)
        self.file = folder / f"{name}.yaml"
        self.file.write_text(f"{_CONFIGURATION}  {module}: {{}}\n{more}")
        self.name = name
        self.environment = python_path(folder)

    def start(self, ready: str = "kas is ready") -> None:
        """Start it, and wait until it says *ready*."""
        arguments = twistd(
            *("kas", "--configuration-file", self.file),
            *("--state-directory", self.state),
        )
        log = self.folder / f"{self.name}.log"
        self.process = Process(self.name, arguments, log, environment=self.environment)
        self.process.wait_for(ready)

    def port(self, what: str) -> int:
        """Where it listens for *what*."""
        pattern = rf"listening for {what} on 127\.0\.0\.1:(\d+)"
        return int(self.process.wait_for(pattern)[1])
