"""The search for the Pythons that compiled wheels are built for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import wheels

#: A version that neither this Python nor the machine has.
VERSION = "3.99"


def program(path: Path, version: str, status: int = 0) -> Path:
    """Create a program that answers like a Python of *version*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\nexit {status}\n")
    path.chmod(0o755)
    return path


def test_versions(tmp_path: Path) -> None:
    """Versions are sorted by number, and other classifiers are left out."""
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nclassifiers = [\n"
        + "".join(
            f'"Programming Language :: Python :: {one}",\n'
            for one in ("3.10", "3.9", "3", "3 :: Only")
        )
        + "]\n"
    )
    assert wheels.versions(tmp_path) == ["3.9", "3.10"]


def test_this_python() -> None:
    version = "{}.{}".format(*sys.version_info)
    assert wheels.find(version, {}) == Path(sys.executable)


def test_newest_of_pyenv(tmp_path: Path) -> None:
    for patch in ("9", "10", "11-dev"):
        program(tmp_path / "versions" / f"{VERSION}.{patch}/bin/python", VERSION)
    found = wheels.find(VERSION, {"PYENV_ROOT": str(tmp_path)})
    assert found == tmp_path / "versions" / f"{VERSION}.10/bin/python"


def test_path(tmp_path: Path) -> None:
    """A shim that fails, another version and a plain file do not count."""
    program(tmp_path / "shims" / f"python{VERSION}", VERSION, status=127)
    program(tmp_path / "other" / f"python{VERSION}", "3.98")
    program(tmp_path / "plain" / f"python{VERSION}", VERSION).chmod(0o644)
    wanted = program(tmp_path / "a path" / f"python{VERSION}", VERSION)
    folders = ("shims", "other", "plain", "missing", "a path")
    environment = {
        "HOME": str(tmp_path),
        "PATH": ":".join(str(tmp_path / one) for one in folders),
    }
    assert wheels.find(VERSION, environment) == wanted
    wanted.unlink()
    assert wheels.find(VERSION, environment) is None


def test_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A version on the command line must exist; otherwise one of them is enough."""
    monkeypatch.setattr(wheels, "find", lambda version, environment: None)
    with pytest.raises(SystemExit, match=f"Python {VERSION} is not installed"):
        wheels.main([VERSION])
    with pytest.raises(SystemExit, match="none of the Pythons"):
        wheels.main([])
    printed = capsys.readouterr().out
    for version in wheels.versions():
        assert f"skipping Python {version}" in printed
