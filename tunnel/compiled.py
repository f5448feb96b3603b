"""
Which build runs: the modules that each request passes, compiled by mypyc, or sources.

Both may lie beside each other, and Python takes what is compiled.  ``TXKAS_PURE=1`` in
the environment of a program has it run the sources, to compare the two or to find out
whether a fault is the compiler's.  They also run, with a warning, where what was
compiled would fail or is another program than the sources beside it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = [
    "LIBRARY",
    "PACKAGES",
    "PURE",
    "build_name",
    "choose",
    "chosen_sources",
    "unusable",
]

#: The variable.
PURE = "TXKAS_PURE"

#: Those with modules that are compiled, and all that these import of ours.
PACKAGES = ("tunnel", "kas", "agentk", "modules")

#: The library that contains all compiled code; the files beside the sources only load
#: it.
LIBRARY = "txkas__mypyc"

#: One of the compiled modules, if any are compiled.
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


def chosen_sources(environ: Mapping[str, str]) -> bool:
    """Whether *environ* asks for the sources."""
    return environ.get(PURE, "0") not in ("", "0")


def choose(environ: Mapping[str, str], root: Path) -> None:
    """
    Pass over compiled modules from now on, if *environ* says so or they cannot run.

    *root* is the folder that `PACKAGES` are in.
    """
    if not chosen_sources(environ):
        reason = unusable(root)
        if reason is None:
            return
        warnings.warn(f"{reason}; the sources run", RuntimeWarning, stacklevel=3)
    sys.meta_path.insert(0, _SourcesOnly())


def unusable(root: Path) -> str | None:
    """Why what was compiled in *root* for this Python must not run; None: it may."""
    library = _file(root, LIBRARY)
    if library is None:
        if _file(root, _COMPILED) is None:
            return None
        return f"{LIBRARY}, which compiled modules need, is missing: reinstall txkas"
    # Only in a checkout do sources change beneath what was compiled of them.  Constants
    # of other modules are compiled in, too: any source of ours counts.
    if (root / "pyproject.toml").is_file():
        since = library.stat().st_mtime
        for package in PACKAGES:
            for source in (root / package).rglob("*.py"):
                if source.stat().st_mtime > since:
                    return (
                        "sources are newer than what was compiled of them: "
                        "make compiled, or make pure"
                    )
    return None


def _file(root: Path, module: str) -> Path | None:
    """Where *module* is compiled for this Python, if it is."""
    parts = module.split(".")
    for suffix in EXTENSION_SUFFIXES:
        file = root.joinpath(*parts[:-1], parts[-1] + suffix)
        if file.is_file():
            return file
    return None


def build_name() -> str:
    """``compiled`` or ``pure``."""
    spec = find_spec(_COMPILED)
    assert spec is not None and spec.origin is not None
    return "pure" if spec.origin.endswith(".py") else "compiled"
