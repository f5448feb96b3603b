"""The image: what deploy/Containerfile does, and the locks that it installs from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integration import needs

ROOT = Path(__file__).parents[1]
CONTAINERFILE = ROOT / "deploy" / "Containerfile"

#: Seconds for one step, which downloads what pip has not kept, or compiles.
PATIENCE = 450


def stages() -> dict[str, list[tuple[str, str]]]:
    """Instructions and what follows each, by the name of their stage."""
    lines = re.sub(r"\\\n\s*", "", CONTAINERFILE.read_text()).splitlines()
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in lines:
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            if word == "FROM":
                name = rest.partition(" AS ")[2]
            found.setdefault(name, []).append((word, rest))
    # Arguments before the first stage.
    found["base images"] = [one for one in found[""] if one[0] == "ARG"]
    found[""] = [one for one in found[""] if one[0] != "ARG"]
    return found


def locked(name: str) -> dict[str, list[str]]:
    """Name and version of each requirement -> its hashes."""
    text = re.sub(r"\\\n", "", (ROOT / name).read_text())
    return {
        found[1]: re.findall(r"--hash=(\S+)", found[2])
        for found in re.finditer(r"^([a-z0-9][^\s;]*==[^\s;]+)(.*)$", text, re.M)
    }


@pytest.mark.parametrize("name", ["requirements-runtime.txt", "requirements-build.txt"])
def test_lock_is_a_part_of_the_other(name: str) -> None:
    """The versions and hashes that everything is tested with."""
    everything = locked("requirements.txt")
    part = locked(name)
    assert part
    for requirement, hashes in part.items():
        assert hashes, requirement
        assert everything.get(requirement) == hashes, requirement


def test_lock_has_what_the_programs_need() -> None:
    """... and of each extra; pip finds out about the rest in the image."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    large = {_name(one) for one in extras.pop("kubeconfig")}
    wanted = [
        *project["dependencies"],
        *(one for some in extras.values() for one in some),
    ]
    names = {_name(one) for one in wanted}
    runtime = {_name(one) for one in locked("requirements-runtime.txt")}
    assert names <= runtime
    # No container has a kubeconfig.
    assert not large & runtime


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_image() -> None:
    """Nobody's user, in the charts' number, and of the same base in both stages."""
    found = stages()
    build, final = found["build"], found["plain"]
    assert found[""] == [("FROM", "plain")]
    bases = {one[0][1].partition(" AS ")[0] for one in (build, final)}
    assert bases == {"${PYTHON_IMAGE}"}
    arguments = dict(rest.split("=", 1) for _, rest in found["base images"])
    assert arguments.keys() == {"PYTHON_IMAGE", "GO_IMAGE"}
    assert found["tools"][0] == ("FROM", "${GO_IMAGE} AS tools")
    assert ("USER", "65532:65532") in final
    after = final[final.index(("USER", "65532:65532")) + 1 :]
    assert {word for word, _ in after} <= {"WORKDIR", "CMD"}
    assert "PYTHONDONTWRITEBYTECODE=1" in dict(final)["ENV"]
    copied = {what.split()[0] for word, what in build if word == "COPY"}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    for one in wheel["build"]["targets"]["wheel"]["only-include"]:
        assert one.partition("/")[0] in copied


@pytest.mark.integration
def test_build(tmp_path: Path) -> None:
    """The first stage, step by step; then nothing is written when a program runs."""
    source, opt = tmp_path / "src", tmp_path / "opt"
    opt.mkdir()
    # Another's packages and settings are not in the image.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    if shutil.which("cc") is None:
        pytest.skip("a C compiler is needed")
    for word, rest in stages()["build"]:
        if rest.startswith("apt-get "):
            # Only a compiler, which is not this test's to install.
            assert set(re.findall(r"(?<= )gcc|libc6-dev", rest)) == {"gcc", "libc6-dev"}
        elif word == "COPY":
            *files, target = rest.split()
            for file in files:
                _copy(ROOT / file, source / target)
        elif word == "RUN":
            command = rest.replace("/opt/", f"{opt}/")
            _run(["sh", "-c", command], source, environment)
        else:
            assert word in ("FROM", "WORKDIR"), word
    shutil.rmtree(source)
    shutil.rmtree(opt / "build")
    before = _files(opt)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    programs = opt / "txkas" / "bin"
    for name in ("kas", "agentk"):
        _run([programs / name, "--help"], tmp_path, environment)
    version = _run([programs / "kasctl", "--version"], tmp_path, environment)
    assert version.endswith("(compiled)\n")
    listed = _run([programs / "twistd", "--help"], tmp_path, environment)
    assert "agentk" in listed
    assert _files(opt) == before
    assert not list(opt.rglob("pip/__init__.py"))


@pytest.mark.integration
def test_programs_of_gitops(tmp_path: Path) -> None:
    """The variant has the programs that the tests run, in the path."""
    found = stages()
    assert found["gitops"] == [
        ("FROM", "plain AS gitops"),
        ("COPY", "--from=tools /opt/tools /usr/local/bin"),
    ]
    needs.helm(), needs.kustomize(), needs.sops()
    source, opt = tmp_path / "src", tmp_path / "opt"
    for word, rest in found["tools"]:
        if word == "COPY":
            file, target = rest.split()
            _copy(ROOT / file, source / target)
        elif word == "RUN":
            command = rest.replace("/opt/", f"{opt}/")
            _run(["sh", "-c", command], source, dict(os.environ))
    for name, arguments in (
        ("helm", ["version"]),
        ("kustomize", ["version"]),
        ("sops", ["--version", "--disable-version-check"]),
    ):
        _run([opt / "tools" / name, *arguments], tmp_path, {})


def _copy(file: Path, target: Path) -> None:
    if file.is_dir():
        shutil.copytree(file, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def _run(command: list[str | Path], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _files(folder: Path) -> dict[str, int]:
    """Every file, and when it was written."""
    return {str(one): one.stat().st_mtime_ns for one in folder.rglob("*")}
