"""
Which build runs: the modules that each request passes, compiled by mypyc, or sources.

Both may lie beside each other, and Python takes what is compiled.  ``TXKAS_PURE=1`` in
the environment of a program has it run the sources, to compare the two or to find out
whether a fault is the compiler's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from types import ModuleType

__all__ = ["PACKAGES", "PURE", "build_name", "obey"]

#: The variable.
PURE = "TXKAS_PURE"

#: Those with modules that are compiled, and all that these import of ours.
PACKAGES = ("tunnel", "kas", "agentk", "modules")

#: One of those that are compiled, if any is.
_COMPILED = "tunnel.wire.session"


class _SourcesOnly(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        top, _, _ = fullname.partition(".")
        if path is None or top not in PACKAGES:
            return None
        name = fullname.rpartition(".")[2] + ".py"
        for folder in path:
            file = os.path.join(folder, name)
            if os.path.isfile(file):
                return spec_from_file_location(fullname, file)
        return None  # a package: those are never compiled


def obey(environ: Mapping[str, str]) -> None:
    """Pass over compiled modules from now on, if *environ* says so."""
    if environ.get(PURE, "0") not in ("", "0"):
        sys.meta_path.insert(0, _SourcesOnly())


def build_name() -> str:
    """``compiled`` or ``pure``."""
    spec = find_spec(_COMPILED)
    assert spec is not None and spec.origin is not None
    return "pure" if spec.origin.endswith(".py") else "compiled"
