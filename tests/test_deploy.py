"""What is in deploy/ can be used as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.needs import program

DEPLOY = Path(__file__).parents[1] / "deploy"
PROGRAM = str(Path(sys.executable).with_name("twistd"))


def units(folder: Path) -> list[str]:
    """The units, with the twistd of this environment in them."""
    found = []
    for unit in sorted((DEPLOY / "systemd").iterdir()):
        copy = folder / unit.name
        copy.write_text(unit.read_text().replace("/opt/txkas/bin/twistd", PROGRAM))
        found.append(str(copy))
    return found


@pytest.mark.integration
def test_systemd_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    program("systemd-analyze", "apt-get install systemd")
    # One that is allowed to see nothing of this machine's own units.
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    complaints = [
        line for line in result.stderr.splitlines() if str(tmp_path) in line
    ] + [
        line for line in result.stderr.splitlines() if line.startswith(("kas", "agent"))
    ]
    assert (result.returncode, complaints) == (0, []), result.stderr


@pytest.mark.integration
def test_services_are_locked_in(tmp_path: Path) -> None:
    program("systemd-analyze", "apt-get install systemd")
    for unit in units(tmp_path):
        if unit.endswith(".service"):
            result = subprocess.run(
                [
                    "systemd-analyze",
                    "security",
                    "--offline=true",
                    "--threshold=20",
                    unit,
                ],
                capture_output=True,
                text=True,
            )
            assert result.returncode == 0, result.stdout.splitlines()[-2:]


def test_manifest_says_what_the_documents_say() -> None:
    documents = list(
        yaml.safe_load_all((DEPLOY / "kubernetes" / "agentk.yaml").read_text())
    )
    by_kind = {document["kind"]: document for document in documents}
    spec = by_kind["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["serviceAccountName"] == by_kind["ServiceAccount"]["metadata"]["name"]
    assert {e["name"] for e in container["env"]} == {"POD_NAMESPACE", "POD_NAME"}
    mounted = {m["mountPath"] for m in container["volumeMounts"]}
    for argument in container["command"]:
        if argument.startswith(("--token-file=", "--ca-cert-file=")):
            assert str(Path(argument.partition("=")[2]).parent) in mounted


def test_options_of_the_manifest_are_options_of_agentk() -> None:
    from agentk.tap import Options

    known = {name for name, *_ in Options.optParameters}
    text = (DEPLOY / "kubernetes" / "agentk.yaml").read_text()
    text += (DEPLOY / "systemd" / "agentk.service").read_text()
    used = {
        word.partition("=")[0].lstrip("-")
        for word in text.replace("- --", " --").split()
        if word.startswith("--") and "=" in word and "from-file" not in word
    }
    assert used - known - {"pidfile"} == set()
    assert shutil.which("twistd", path=str(Path(PROGRAM).parent))
