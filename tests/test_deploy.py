"""What is in deploy/ can be used as it is."""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kas.ctl.manifest import template
from kas.fleet.balance import PER_SECOND
from kas.fleet.part import LEAVE_PATIENCE
from tests.integration.needs import kubernetes, program
from tunnel.hosting.modules import STOP_TIMEOUT

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


def test_one_that_has_no_memory_does_not_end_all() -> None:
    """By default systemd ends a unit of which the kernel kills one process."""
    unit = (DEPLOY / "systemd" / "kas.service").read_text().splitlines()
    assert "OOMPolicy=continue" in unit


def test_manifest_says_what_the_documents_say() -> None:
    by_kind = {document["kind"]: document for document in template()}
    spec = by_kind["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["serviceAccountName"] == by_kind["ServiceAccount"]["metadata"]["name"]
    assert {e["name"] for e in container["env"]} == {"POD_NAMESPACE", "POD_NAME"}
    mounted = {m["mountPath"] for m in container["volumeMounts"]}
    for argument in container["command"]:
        if argument.startswith(("--token-file=", "--ca-cert-file=")):
            assert str(Path(argument.partition("=")[2]).parent) in mounted


def kas_manifest() -> dict[str, Any]:
    text = (DEPLOY / "kustomize" / "kas" / "base" / "kas.yaml").read_text()
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_manifest_of_kas_has_a_configuration_that_kas_takes(tmp_path: Path) -> None:
    from kas.config.loading import load
    from kas.config.own_address import own_address
    from kas.state import pki
    from kas.state.directory import StateDirectory

    by_kind = kas_manifest()
    spec = by_kind["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    text = by_kind["ConfigMap"]["data"]["kas.yaml"]
    for name in ("tls", "secrets"):
        (tmp_path / name).mkdir()
        text = text.replace(f"/config/{name}/", f"{tmp_path}/{name}/")
    state = StateDirectory.open(tmp_path / "state")
    made = pki.DevelopmentPki(state, "h", lambda: datetime.now(UTC)).ensure()
    assert made.ca_file is not None
    for file, name in (
        (made.certificate_file, "tls.crt"),
        (made.key_file, "tls.key"),
        (made.ca_file, "ca.crt"),
    ):
        shutil.copy(file, tmp_path / "tls" / name)
    secret = base64.b64encode(bytes(32))
    (tmp_path / "secrets" / "private-api-secret").write_bytes(secret)
    (tmp_path / "kas.yaml").write_text(text)
    environ = {
        one["name"]: one["value"].replace("$(POD_IP)", "10.1.2.3")
        for one in container["env"]
        if "value" in one
    }
    configuration, modules = load(tmp_path / "kas.yaml", environ, list)
    assert [one.name for one in modules] == ["kubernetes_api"]
    assert configuration.private_api is not None
    own = own_address(configuration.private_api.listen, environ, list)
    assert own.url == "tls://10.1.2.3:8155"
    assert own.tls_server_name == "kas.example"
    listened = {
        int(listen.address.rpartition(":")[2])
        for listen in (
            configuration.agent.listen,
            configuration.observability.listen,
            configuration.private_api.listen,
            modules[0].configuration.listen,
        )
    }
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert set(ports.values()) == listened
    for one in by_kind["Service"]["spec"]["ports"]:
        assert one["targetPort"] in ports
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "observability"
    grace = configuration.agent.listen.shutdown_grace_period
    leaving = LEAVE_PATIENCE + 5_000 / PER_SECOND
    assert spec["terminationGracePeriodSeconds"] >= leaving + grace + STOP_TIMEOUT


def test_manifest_of_kas_mounts_what_it_uses() -> None:
    from kas.tap import Options

    template = kas_manifest()["Deployment"]["spec"]["template"]
    spec = template["spec"]
    (container,), (before,) = spec["containers"], spec["initContainers"]
    mounted = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    assert set(mounted.values()) == {one["name"] for one in spec["volumes"]}
    known = {name.removesuffix("=") for name in Options().longOpt}
    words = container["command"]
    for argument in words[words.index("kas") + 1 :]:
        option, _, value = argument.partition("=")
        assert option.removeprefix("--") in known
        folder = str(Path(value).parent)
        assert folder in mounted
        if option == "--state-directory":
            # made by the one before, because nobody else may write there
            assert f"-m 700 {value}" in before["command"][-1]
    assert "/config/identity/identity.json" in before["command"][-1]
    assert "/config/identity" in mounted
    assert (
        template["metadata"]["labels"] == kas_manifest()["Service"]["spec"]["selector"]
    )


@pytest.mark.integration
def test_state_of_the_manifest(tmp_path: Path) -> None:
    """What is done before kas: its directory is accepted, the identities are found."""
    from kas.identity.store import IdentityStore
    from kas.state.directory import StateDirectory

    spec = kas_manifest()["Deployment"]["spec"]["template"]["spec"]
    (before,) = spec["initContainers"]
    *shell, script = before["command"]
    for name in ("state", "config"):
        script = script.replace(f"/{name}/", f"{tmp_path}/{name}/")
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    own = StateDirectory.open(tmp_path / "config" / "identity")
    IdentityStore(own, lambda: datetime.now(UTC)).add_agent("prod")
    for _ in range(2):  # a container that starts again
        subprocess.run([*shell, script], check=True)
    found = StateDirectory.open(tmp_path / "state" / "kas", create=False)
    (agent,) = IdentityStore(found, lambda: datetime.now(UTC)).load().agents
    assert agent.name == "prod"


def test_options_of_the_manifest_are_options_of_agentk() -> None:
    from agentk.tap import Options

    known = {name for name, *_ in Options.optParameters}
    base = DEPLOY / "kustomize" / "agentk" / "base"
    text = (base / "agentk.yaml").read_text()
    text += (DEPLOY / "systemd" / "agentk.service").read_text()
    used = {
        word.partition("=")[0].lstrip("-")
        for word in text.replace("- --", " --").split()
        if word.startswith("--") and "=" in word and "from-file" not in word
    }
    # AGENTK_OPTIONS may name a file; --kas-address may come several times.
    assert used - known - {"pidfile", "kas-address", "configuration-file"} == set()
    assert shutil.which("twistd", path=str(Path(PROGRAM).parent))


@pytest.mark.integration
def test_overlay_of_the_documents(tmp_path: Path) -> None:
    """The overlay that the documents show becomes what it says."""
    text = (DEPLOY.parent / "docs" / "installing.rst").read_text()
    _, _, rest = text.partition("   resources:\n")
    lines = []
    for line in ("   resources:", *rest.splitlines()):
        if line and not line.startswith("   "):
            break
        lines.append(line[3:])
    overlay = yaml.safe_load("\n".join(lines))
    base = DEPLOY / "kustomize" / "agentk" / "overlays" / "namespaced"
    assert overlay["resources"] == [f"../txkas/{base.relative_to(DEPLOY.parent)}"]
    overlay["resources"] = [os.path.relpath(base, tmp_path.resolve())]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    made = subprocess.run(
        [kubernetes() / "kubectl", "kustomize", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    (container,) = next(
        one["spec"]["template"]["spec"]["containers"]
        for one in yaml.safe_load_all(made.stdout)
        if one["kind"] == "Deployment"
    )
    assert container["image"] == "registry.example/txkas:1"
    addresses = [one for one in container["command"] if "--kas-address" in one]
    assert addresses == ["--kas-address=tls://kas.example.org:8150"]


def test_upgrades_again_and_again(tmp_path: Path) -> None:
    """The commands of the page put each version in place, and lose none."""
    page = (DEPLOY.parent / "docs" / "upgrade.rst").read_text()
    page = page.replace("/opt", shlex.quote(str(tmp_path)))

    def run(*beginnings: str, version: int) -> None:
        lines = [one.strip() for one in page.splitlines()]
        for line in (one for one in lines if one.startswith(beginnings)):
            command = line.replace("txkas-2", f"txkas-{version}")
            subprocess.run(["sh", "-ec", command], check=True)

    link = tmp_path / "txkas"
    link.mkdir()
    (link / "version").write_text("1")
    for version in (2, 3, 4):
        new = tmp_path / f"txkas-{version}"
        new.mkdir()
        (new / "version").write_text(str(version))
        run("test -L", "ln -sfn", version=version)
        assert (link / "version").read_text() == str(version)
        for older in range(1, version):
            kept = tmp_path / f"txkas-{older}" / "version"
            assert kept.read_text() == str(older)
