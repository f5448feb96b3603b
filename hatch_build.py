"""With ``TXKAS_COMPILE=1``, puts what `tools.compiled` makes into the wheel."""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _wanted() -> bool:
    return os.environ.get("TXKAS_COMPILE", "0") not in ("", "0")


class CompiledHook(BuildHookInterface[Any]):
    """Without the variable the wheel has sources alone, and needs no compiler."""

    PLUGIN_NAME = "custom"
    #: What was compiled, until it is in the wheel.
    folder: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """For the compiler; mypyc looks into all that our modules import, too."""
        if not _wanted():
            return []
        whole = tomllib.loads((Path(self.root) / "pyproject.toml").read_text())
        project = whole["project"]
        extras = project["optional-dependencies"]
        return [
            *whole["dependency-groups"]["compile"],
            *project["dependencies"],
            # Nothing that is compiled imports the library of `kubeconfig`.
            *(one for name in extras if name != "kubeconfig" for one in extras[name]),
        ]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _wanted():
            return
        if version == "editable":
            raise SystemExit(
                "TXKAS_COMPILE is for wheels; in a checkout: make compiled"
            )
        sys.path.insert(0, self.root)
        self.folder = tempfile.TemporaryDirectory(prefix="txkas-wheel-")
        from tools import compiled

        out = Path(self.folder.name)
        try:
            files = compiled.build(Path(self.root), out)
        except compiled.CompileError as error:
            raise SystemExit(
                f"{error}\n\nTXKAS_COMPILE=1 needs a C compiler and the headers of "
                "Python; without it the wheel has sources, which run as well"
            ) from None
        for file in files:
            build_data["force_include"][str(out / file)] = str(file)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(
        self, version: str, build_data: dict[str, Any], artifact_path: str
    ) -> None:
        if self.folder is not None:
            self.folder.cleanup()
