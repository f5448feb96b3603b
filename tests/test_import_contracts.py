"""The contract that lists allowed imports, as import-linter checks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

CONFIGURATION = """
[importlinter]
root_packages =
    user
    lib
contract_types =
    allowed: tools.import_contracts.AllowedImports

[importlinter:contract:1]
name = what user imports
type = allowed
importers =
    user
imported = lib
allowed =
"""


def check(folder: Path, *allowed: str) -> tuple[bool, str]:
    """Return whether the contract is kept, and the output of import-linter."""
    for name, text in {
        "user/one.py": "import lib.api, lib.toolkit.timers, lib.secret",
        "lib/api.py": "import lib.secret",
        "lib/secret.py": "",
        "lib/other.py": "",
        "lib/toolkit/timers.py": "",
    }.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text + "\n")
    lines = "".join(f"    {one}\n" for one in allowed)
    (folder / "contracts.ini").write_text(CONFIGURATION + lines)
    ran = subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            "--config=contracts.ini",
            "--no-cache",
        ],
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "allowed", [("lib.api", "lib.toolkit.*", "lib.secret"), ("lib.*",)]
)
def test_kept(tmp_path: Path, allowed: tuple[str, ...]) -> None:
    """Each import has an entry; imports inside the package do not count."""
    kept, output = check(tmp_path, *allowed)
    assert kept, output


def test_broken(tmp_path: Path) -> None:
    """An import without an entry breaks the contract; the name alone is one module."""
    kept, output = check(tmp_path, "lib.api", "lib.toolkit")
    assert not kept
    assert "user.one -> lib.secret is not allowed" in output
    assert "user.one -> lib.toolkit.timers is not allowed" in output
    assert "user.one -> lib.api" not in output


def test_entries_without_use(tmp_path: Path) -> None:
    """The list stays as short as it can be."""
    kept, output = check(tmp_path, "lib.*", "lib.other")
    assert not kept
    assert "no import needs the entry lib.other" in output
