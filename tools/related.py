"""
Prints the test files that a change of a file needs.

    python -m tools.related [--depth N] [FILE...]

``make related FILE=...`` runs this program.  Without a file, the program uses the files
that differ from the last commit, and new files.  The tests of a Python file are

* the test at the path that mirrors the path of the file: for a/b/c.py
  tests/a/b/test_c.py and tests/a/b/test_c_*.py;
* tests that import the file, or that import a module that imports it, up to N imports
  away (2); tests with real processes (tests/integration, tests/faults) only if they
  import the file themselves, because such a test imports many modules that it does not
  examine;
* tests/test_structure.py, which reads every file of the product.

The tests of any other file are the tests that contain its path or its name.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import grimp

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("agentk", "kas", "modules", "tunnel")
PACKAGES = (*PRODUCT, "bench", "demo", "tests", "tools")

#: Maximum number of imports between a test and a file.  Three imports already reach a
#: third of all tests.
DEPTH = 2

#: Folders of tests that start programs.
PROCESSES = ("tests/integration/", "tests/faults/")

STRUCTURE = "tests/test_structure.py"


def import_graph() -> grimp.ImportGraph:
    """Read the imports of all packages."""
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def _module(file: str) -> str:
    path = PurePosixPath(file).with_suffix("")
    return ".".join(path.parent.parts if path.name == "__init__" else path.parts)


def _is_test(file: str) -> bool:
    path = PurePosixPath(file)
    return path.parts[0] == "tests" and path.match("test_*.py")


def mirrored(file: str, root: Path = ROOT) -> set[str]:
    """Return the tests whose path mirrors the path of *file*."""
    path = PurePosixPath(file)
    if path.name == "__init__.py":
        path = path.parent
    folder = root / "tests" / path.parent
    names = (f"test_{path.stem}.py", f"test_{path.stem}_*.py")
    found = (one for name in names for one in folder.glob(name))
    return {one.relative_to(root).as_posix() for one in found}


def importing(file: str, graph: grimp.ImportGraph, depth: int = DEPTH) -> set[str]:
    """Return the tests that import *file*, at most *depth* imports away."""
    tests: set[str] = set()
    reached = edge = {_module(file)}
    for distance in range(1, depth + 1):
        importers = (graph.find_modules_that_directly_import(one) for one in edge)
        edge = set().union(*importers) - reached
        reached = reached | edge
        for module in edge:
            test = f"{module.replace('.', '/')}.py"
            if _is_test(test) and (distance == 1 or not test.startswith(PROCESSES)):
                tests.add(test)
    return tests


def naming(file: str, root: Path = ROOT) -> set[str]:
    """Return the tests that contain the path or the name of *file*."""
    words = (file, f'"{PurePosixPath(file).name}"')
    tests = (root / "tests").rglob("test_*.py")
    return {
        one.relative_to(root).as_posix()
        for one in tests
        if any(word in one.read_text("utf-8") for word in words)
    }


def related(
    files: Iterable[str], graph: grimp.ImportGraph, root: Path, depth: int = DEPTH
) -> list[str]:
    """Return the tests that a change of *files* needs, sorted."""
    tests: set[str] = set()
    for file in files:
        if file.endswith(".proto"):
            file = f"{file.removesuffix('.proto')}_pb2.py"
        if _is_test(file):
            tests.add(file)
        elif _module(file) not in graph.modules or not file.endswith(".py"):
            tests |= naming(file, root)
        else:
            tests |= mirrored(file, root) | importing(file, graph, depth)
            if file.startswith(tuple(f"{one}/" for one in PRODUCT)):
                tests.add(STRUCTURE)
    return sorted(one for one in tests if (root / one).exists())


def _changed(root: Path) -> list[str]:
    """Return the files that differ from the last commit, and new ones."""
    git = ["git", "-c", "core.quotepath=off"]
    lines: list[str] = []
    for command in (
        ["diff", "--name-only", "--relative", "HEAD"],
        ["ls-files", "--others", "--exclude-standard"],
    ):
        lines += subprocess.run(
            [*git, *command], cwd=root, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    return lines


def _relative(file: str, root: Path) -> str:
    path = Path(file).absolute()
    if not path.is_relative_to(root) or not path.is_file():
        raise SystemExit(f"related: {file} is not a file of this repository")
    return path.relative_to(root).as_posix()


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Print one test file per line."""
    parser = argparse.ArgumentParser(
        prog="tools.related",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--depth", type=int, default=DEPTH, metavar="N")
    options = parser.parse_args(arguments)
    files = [_relative(one, root) for one in options.files] or _changed(root)
    if not files:
        raise SystemExit("related: no file differs from the last commit; name one")
    tests = related(files, import_graph(), root, options.depth)
    if not tests:
        raise SystemExit(
            f"related: no test imports or names {', '.join(files)}; run make unit"
        )
    print(*tests, sep="\n")


if __name__ == "__main__":
    main()
