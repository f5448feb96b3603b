"""
Builds a compiled wheel for each version of Python, and checks each in a new
environment.

    python -m tools.wheels [--out FOLDER] [VERSION...]

Without a version, the program builds for every version in the classifiers of
``pyproject.toml`` that this machine has, and prints the versions that are missing.  A
version on the command line must exist. The compiler and all dependencies have the
locked versions of ``requirements-build.txt`` and ``requirements-runtime.txt``, as in
``deploy/Containerfile``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.check_wheel import check_content, fail, run, say

ROOT = Path(__file__).resolve().parents[1]


def versions(root: Path = ROOT) -> list[str]:
    """Return the supported versions of Python, oldest first."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    found = [
        one.removeprefix(prefix)
        for one in project["classifiers"]
        if re.fullmatch(rf"{prefix}3\.[0-9]+", one)
    ]
    return sorted(found, key=_number)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _candidates(version: str, environment: Mapping[str, str]) -> Iterator[Path]:
    if sys.version_info[:2] == _number(version):
        yield Path(sys.executable)
    home = environment.get("HOME", "/")
    pyenv = Path(environment.get("PYENV_ROOT") or Path(home, ".pyenv")) / "versions"
    for folder in sorted(
        (one for one in pyenv.glob(f"{version}.*") if one.name[-1].isdigit()),
        key=lambda one: _number(one.name),
        reverse=True,
    ):
        yield folder / "bin" / "python"
    for folder in map(Path, environment.get("PATH", "").split(os.pathsep)):
        yield folder / f"python{version}"


def find(version: str, environment: Mapping[str, str]) -> Path | None:
    """
    Return a Python of this version; None if this machine does not have one.

    Each candidate runs once, because pyenv has shims even for versions that do not run.
    """
    report = "import sys; print('%d.%d' % sys.version_info[:2])"
    for python in _candidates(version, environment):
        if not os.access(python, os.X_OK):
            continue
        done = subprocess.run(
            [python, "-I", "-c", report], capture_output=True, text=True
        )
        if done.returncode == 0 and done.stdout.strip() == version:
            return python
    return None


def _environment(python: Path, folder: Path, requirements: str) -> Path:
    """Create a virtual environment with locked packages; return its Python."""
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--python", python, folder)
    inside = folder / "bin" / "python"
    # fmt: off
    run(
        uv, "pip", "install", "--quiet", "--python", inside, "--no-deps",
        "--require-hashes", "-r", ROOT / requirements,
    )
    # fmt: on
    return inside


def build(python: Path, out: Path, folder: Path) -> Path:
    """Build the compiled wheel for *python* into *out*."""
    inside = _environment(python, folder / "build", "requirements-build.txt")
    made = folder / "dist"
    # fmt: off
    run(
        "env", "TXKAS_COMPILE=1", inside, "-m", "hatchling", "build",
        "-t", "wheel", "-d", made, cwd=ROOT,
    )
    # fmt: on
    (wheel,) = made.glob("*.whl")
    check_content(wheel)
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(wheel, out))


def check(python: Path, wheel: Path, folder: Path) -> None:
    """Install *wheel* into a new environment, and start each program from there."""
    inside = _environment(python, folder / "use", "requirements-runtime.txt")
    uv = Path(sys.executable).with_name("uv")
    run(uv, "pip", "install", "--quiet", "--python", inside, "--no-deps", wheel)
    run(uv, "pip", "check", "--python", inside)
    programs = inside.parent
    for program in ("kas", "agentk", "kasctl"):
        printed = run(programs / program, "--version")
        if not printed.rstrip().endswith("(compiled)"):
            fail(f"{program} --version of {wheel.name} prints {printed!r}")
        if not run(programs / program, "--help").startswith("Usage: "):
            fail(f"{program} --help of {wheel.name} prints no usage")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build and check the wheels."""
    description = (__doc__ or "").strip().splitlines()[0]
    parser = argparse.ArgumentParser(prog="tools.wheels", description=description)
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args(arguments)
    built = 0
    for version in options.versions or versions():
        python = find(version, os.environ)
        if python is None:
            if options.versions:
                fail(f"Python {version} is not installed on this machine")
            say(f"skipping Python {version}, which is not installed on this machine")
            continue
        say(f"building for Python {version} ({python})")
        with tempfile.TemporaryDirectory(prefix="txkas-wheels-") as name:
            wheel = build(python, options.out.resolve(), Path(name))
            say(f"starting the programs of {wheel.name}")
            check(python, wheel, Path(name))
        built += 1
    if not built:
        fail(f"none of the Pythons {', '.join(versions())} is on this machine")
    say(f"{built} compiled wheels are in {options.out}")


if __name__ == "__main__":
    main()
