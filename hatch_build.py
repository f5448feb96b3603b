"""With ``TXKAS_COMPILE=1``, puts what `tools.compiled` makes into the wheel."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledHook(BuildHookInterface[Any]):
    """Without the variable the wheel has sources alone, and needs no compiler."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("TXKAS_COMPILE", "0") in ("", "0"):
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
