"""With ``TXKAS_COMPILE=1``, puts what `tools.compiled` makes into the wheel."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _wanted() -> bool:
    return os.environ.get("TXKAS_COMPILE", "0") not in ("", "0")


class CompiledHook(BuildHookInterface[Any]):
    """Without the variable the wheel has sources alone, and needs no compiler."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """For the compiler; mypyc looks into all that our modules import, too."""
        if not _wanted():
            return []
        whole = tomllib.loads((Path(self.root) / "pyproject.toml").read_text())
        project = whole["project"]
        extras = project["optional-dependencies"].values()
        return [
            *whole["dependency-groups"]["compile"],
            *project["dependencies"],
            *(one for extra in extras for one in extra),
        ]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _wanted():
            return
        if version == "editable":
            raise SystemExit(
                "TXKAS_COMPILE is for wheels; in a checkout: make compiled"
            )
        sys.path.insert(0, self.root)
        from tools import compiled

        out = Path(self.directory) / "compiled"
        for file in compiled.build(Path(self.root), out):
            build_data["force_include"][str(out / file)] = str(file)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
