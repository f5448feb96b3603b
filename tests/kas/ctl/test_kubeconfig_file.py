"""kasctl kubeconfig --merge, into the file that kubectl uses."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from kas.ctl import kubeconfig_file
from tests.kas.ctl.kasctl import Kasctl

THERE = """\
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- name: other
  cluster: {server: https://other, insecure-skip-tls-verify: true}
users:
- name: other
  user: {token: keep}
contexts:
- name: prod
  context: {cluster: other, user: other}
current-context: prod
"""
NEW = ("kubeconfig", "--agent", "prod", "--user", "me", "--as-agent", "--merge")


@pytest.fixture(autouse=True)
def home(kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(kasctl.path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    kasctl.ok("agent", "add", "prod")
    return kasctl.path


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def named(content: Any, key: str) -> dict[str, Any]:
    return {one["name"]: one for one in content[key]}


def test_none_is_there(kasctl: Kasctl) -> None:
    """It is made as kubectl would, and kubectl's lock is given back."""
    said = kasctl.ok(*NEW)
    path = kasctl.path / ".kube" / "config"
    assert f"the kubeconfig {path} now has me with the contexts: prod" in said
    assert "kubectl --context prod version" in said
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load(path)["current-context"] == "prod"
    assert os.listdir(path.parent) == ["config"]


def test_what_is_there_stays(kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch) -> None:
    real = kasctl.path / "real"
    real.write_text(THERE)
    link = kasctl.path / "link"
    link.symlink_to(real)
    monkeypatch.setenv("KUBECONFIG", str(link))
    said = kasctl.data(*NEW)
    # The name is taken by another cluster.
    assert said["contexts"] == ["kas-prod"]
    assert link.is_symlink()
    content, before = load(real), yaml.safe_load(THERE)
    assert content["current-context"] == "prod"
    assert content["preferences"] == {"colors": True}
    for key in ("clusters", "users", "contexts"):
        assert named(content, key).items() >= named(before, key).items()
    token = named(content, "users")["me@kas-prod"]["user"]["token"]
    assert token.startswith("user:prod:kasuser-")
    assert Path(f"{link}.bak").read_text() == THERE
    # Again, with another token: no entry is there twice.
    kasctl.ok(*NEW, "--rotate")
    again = load(real)
    assert [one["name"] for one in again["users"]] == ["other", "me@kas-prod"]
    assert named(again, "users")["me@kas-prod"]["user"]["token"] != token


def test_the_context_of_another_user_stays(kasctl: Kasctl) -> None:
    """Who looks only, as one user, does not change things as another unawares."""
    watcher = ("kubeconfig", "--agent", "prod", "--read-only", "--merge")
    assert kasctl.data(*watcher, "--user", "look")["contexts"] == ["prod"]
    for user, name in (("me", "kas-prod"), ("me2", "me2@prod")):
        new = ("kubeconfig", "--agent", "prod", "--as-agent", "--merge")
        for more in ((), ("--rotate",)):
            made = kasctl.data(*new, "--user", user, *more)
            assert made["contexts"] == [name]
    content = load(kasctl.path / ".kube" / "config")
    users = {
        name: one["context"]["user"] for name, one in named(content, "contexts").items()
    }
    assert users == {
        "prod": "look@kas-prod",
        "kas-prod": "me@kas-prod",
        "me2@prod": "me2@kas-prod",
    }
    assert content["current-context"] == "prod"


def test_every_name_is_taken(kasctl: Kasctl) -> None:
    path = kasctl.path / "mine"
    there = yaml.safe_load(THERE)
    (context,) = there["contexts"]
    there["contexts"] += [{**context, "name": n} for n in ("kas-prod", "me@prod")]
    path.write_text(yaml.safe_dump(there))
    before = kasctl.store().load(), path.read_bytes()
    said = kasctl.fails(*NEW, "--output-file", str(path))
    assert "the contexts prod, kas-prod, me@prod exist and lead elsewhere" in said
    assert "kubectl config rename-context" in said
    assert (kasctl.store().load(), path.read_bytes()) == before


def test_another_url_is_told(kasctl: Kasctl) -> None:
    """It changes where the contexts of other users lead, too."""
    assert "the cluster" not in kasctl.run(*NEW).stderr
    other = ("--server", "https://kas.example.org", "--system-cas")
    said = kasctl.run(*NEW, "--rotate", *other).stderr
    assert (
        "the cluster kas-prod now leads to https://kas.example.org/agents/prod for "
        "all its contexts; before, it led to https://127.0.0.1:8154/agents/prod"
    ) in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[1]", "is not a kubeconfig"),
        ("clusters: {}\nusers: 1", "is not a kubeconfig"),
        ("a: [", "is not YAML (line 1)"),
    ],
)
def test_what_is_no_kubeconfig_is_left_alone(
    kasctl: Kasctl, content: str, says: str
) -> None:
    path = kasctl.path / "mine"
    path.write_text(content)
    before = kasctl.store().load()
    assert says in kasctl.fails(*NEW, "--output-file", str(path))
    assert path.read_text() == content
    assert kasctl.store().load() == before


def test_another_program_writes(kasctl: Kasctl) -> None:
    folder = kasctl.path / ".kube"
    folder.mkdir()
    (folder / "config.lock").touch()
    before = kasctl.store().load()
    assert "another program is changing" in kasctl.fails(*NEW)
    assert kasctl.store().load() == before
    assert (folder / "config.lock").exists()


def test_several_files(kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "a:b")
    assert "names several files" in kasctl.fails(*NEW)


def test_an_empty_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("\n")
    assert kubeconfig_file.read(tmp_path / "x") == {}
