"""
Selection of the build to run: compiled modules (mypyc) for requests, or their sources.

Both may exist side by side, and Python prefers compiled modules. ``TXKAS_PURE=1`` in
the environment makes a program run the sources, to compare the two or to find out
whether the compiler causes a fault. The sources also run, with a warning, if the
compiled modules would fail or differ from the sources.
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

#: The name of the environment variable.
PURE = "TXKAS_PURE"

#: The packages with compiled modules, and all of our packages that these import.
PACKAGES = ("tunnel", "kas", "agentk", "modules")

#: The library that contains all compiled code; the files beside the sources only load
#: it.
LIBRARY = "txkas__mypyc"

#: One of the compiled modules, to check whether any are compiled.
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
        return None  # a package: packages are never compiled


def chosen_sources(environ: Mapping[str, str]) -> bool:
    """Tell whether *environ* selects the sources."""
    return environ.get(PURE, "0") not in ("", "0")


def choose(environ: Mapping[str, str], root: Path) -> None:
    """
    Skip compiled modules from now on, if *environ* selects the sources or they cannot
    run.

    *root* is the folder that contains `PACKAGES`.
    """
    if not chosen_sources(environ):
        reason = unusable(root)
        if reason is None:
            return
        warnings.warn(f"{reason}; running the sources", RuntimeWarning, stacklevel=3)
    sys.meta_path.insert(0, _SourcesOnly())


def unusable(root: Path) -> str | None:
    """
    Return why the modules that were compiled in *root* for this Python must not run;
    None if they may.
    """
    library = _file(root, LIBRARY)
    if library is None:
        if _file(root, _COMPILED) is None:
            return None
        return f"{LIBRARY}, which compiled modules need, is missing: reinstall txkas"
    # Only in a checkout can sources be newer than the compiled modules. Constants of
    # other modules are compiled in, too, so all of our sources count.
    if (root / "pyproject.toml").is_file():
        since = library.stat().st_mtime
        for package in PACKAGES:
            for source in (root / package).rglob("*.py"):
                if source.stat().st_mtime > since:
                    return (
                        "sources are newer than the compiled modules: run make "
                        "compiled, or make pure"
                    )
    return None


def _file(root: Path, module: str) -> Path | None:
    """
    Return the path of *module* compiled for this Python; None if it does not exist.
    """
    parts = module.split(".")
    for suffix in EXTENSION_SUFFIXES:
        file = root.joinpath(*parts[:-1], parts[-1] + suffix)
        if file.is_file():
            return file
    return None


def build_name() -> str:
    """Return ``compiled`` or ``pure``."""
    spec = find_spec(_COMPILED)
    assert spec is not None and spec.origin is not None
    return "pure" if spec.origin.endswith(".py") else "compiled"
