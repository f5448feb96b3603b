"""The files that tell GitLab, pre-commit, tox and readers which make targets to run."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import wheels
from tunnel import __version__

ROOT = Path(__file__).parents[1]
GITLAB = ".gitlab-ci.yml"
PRE_COMMIT = ".pre-commit-config.yaml"
DOCUMENTS = sorted([*ROOT.glob("*.rst"), *ROOT.glob("docs/*.rst")])


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))


def made(command: str) -> Iterator[str]:
    """Yield the targets of each make in a command, without options and variables."""
    command = re.sub(r"\"[^\"]*\"", "", command)
    for found in re.finditer(r"(?:^|[\s;&])make((?: +[^\s;&|`]+)*)", command):
        for word in found[1].split():
            if "=" not in word and not word.startswith("-"):
                yield word


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def jobs() -> dict[str, Any]:
    """Return the jobs of GitLab by name."""
    return {
        name: job
        for name, job in load(GITLAB).items()
        if isinstance(job, dict) and "script" in job
    }


def test_made() -> None:
    command = 'env -u GIT_DIR make lint docs X="1 2" && make --silent unit'
    assert list(made(command)) == ["lint", "docs", "unit"]


def test_gitlab_runs_targets() -> None:
    run = [target for job in jobs().values() for target in made(job["script"])]
    assert set(run) <= targets()
    assert {"lint", "types", "layers", "unit", "test", "docs", "wheels"} <= set(run)
    assert {job["stage"] for job in jobs().values()} == set(load(GITLAB)["stages"])


@pytest.mark.parametrize("job", ["unit", "wheels"])
def test_gitlab_runs_every_python(job: str) -> None:
    template = load(GITLAB)[jobs()[job]["extends"]]
    (axis,) = template["parallel"]["matrix"]
    assert axis == {"PYTHON": wheels.versions()}


def test_oldest_python_is_the_default() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = wheels.versions()[0]
    assert project["requires-python"] == f">={oldest}"
    assert load(GITLAB)["variables"]["PYTHON"] == oldest


def test_pre_commit_runs_targets() -> None:
    (repository,) = load(PRE_COMMIT)["repos"]
    assert repository["repo"] == "local"
    run: list[str] = []
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        # make would read a file name as a target.
        assert hook["pass_filenames"] is False
        run += made(hook["entry"])
    assert set(run) <= targets()
    assert {"lint", "unit", "docs"} <= set(run)


def test_tox_runs_every_python() -> None:
    (listed,) = re.findall(r"^env_list = (.*)$", (ROOT / "tox.ini").read_text(), re.M)
    pythons = [one for one in listed.split(", ") if one.startswith("py3")]
    assert pythons == [f"py{one.replace('.', '')}" for one in wheels.versions()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: str(one.name))
def test_documents_name_targets(document: Path) -> None:
    text = document.read_text()
    # A paragraph of a list is indented as well: its lines end with a point.
    block = r"^ {4}(make(?: [\w=]+)+)(?: {2,}.*| +#.*)?$"
    for found in re.finditer(rf"``(make [^`]+)``|{block}", text, re.M):
        command = found[1] or found[2]
        assert set(made(command)) <= targets(), command


def test_news_begin_with_this_version() -> None:
    """A version has an entry in NEWS.rst when its number is set."""
    text = (ROOT / "NEWS.rst").read_text()
    (newest, *_) = re.findall(r"^([0-9.]+) \([0-9-]+\)$", text, re.M)
    assert newest == __version__


def test_fragments_have_a_kind() -> None:
    """towncrier ignores a file with any other name."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    for file in (ROOT / config["directory"]).iterdir():
        kinds = "feature|bugfix|doc|removal|misc"
        assert re.fullmatch(rf"README\.rst|\+[a-z0-9-]+\.({kinds})\.rst", file.name)
