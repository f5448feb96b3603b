"""kasctl agent install: nothing is made in vain, and repeating it is safe."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from kas.ctl import agents, install
from kas.ctl.cluster_client import connect
from kas.ctl.common import Ctl
from kas.ctl.install import PLACEHOLDER, Waiting
from kas.identity.store import digest
from kas.state import running
from kas.state.directory import StateDirectory
from tests.kas.ctl.api_server import ApiServer, api_server, kubeconfig
from tests.kas.ctl.kasctl import Kasctl
from tests.kas.ctl.listeners import free_address
from tunnel.errors import ConfigurationError
from tunnel.program.opened import Opened

SECRET = "/api/v1/namespaces/txkas/secrets/agentk-token"
DEPLOYMENT = "/apis/apps/v1/namespaces/txkas/deployments/agentk"
SET = "/apis/apps/v1/namespaces/txkas/replicasets"
POD = "/api/v1/namespaces/txkas/pods"


class Installer:
    """kasctl with a kubeconfig that leads to an API server."""

    def __init__(self, kasctl: Kasctl, server: ApiServer) -> None:
        self.kasctl = kasctl
        self.server = server
        self.file = kubeconfig(kasctl.path / "config", server.port)

    def line(self, *more: str, name: str = "prod", wait: str = "0") -> tuple[str, ...]:
        return (
            *("agent", "install", name, "--context", "edge", "--image", "r/txkas:1"),
            *("--kas-address", "wss://kas.example.org/kas", "--system-cas"),
            *("--kubeconfig", str(self.file), "--timeout", wait, *more),
        )

    def ok(self, *more: str, name: str = "prod") -> str:
        result = self.kasctl.run(*self.line(*more, name=name))
        assert result.exit_code == 0, result.output
        return result.output

    def fails(self, *more: str, name: str = "prod") -> str:
        return self.kasctl.fails(*self.line(*more, name=name))

    def token(self) -> bytes:
        """The token in the cluster."""
        return base64.b64decode(self.server.objects[SECRET]["data"]["token"])

    def kept(self, name: str = "prod") -> list[str]:
        """The hashes of an agent's tokens; none if it is not registered."""
        if not self.kasctl.state.exists():
            return []
        return [
            token.sha256
            for agent in self.kasctl.store().load().agents
            if agent.name == name
            for token in agent.tokens
        ]


@pytest.fixture
def installer(kasctl: Kasctl) -> Iterator[Installer]:
    with api_server() as server:
        yield Installer(kasctl, server)


def test_all_objects(installer: Installer) -> None:
    """The same as in the manifest, and the token is nowhere else."""
    said = installer.ok("--impersonate", "--module", "gitops")
    kinds = [one["kind"] for one in installer.server.objects.values()]
    assert kinds[:2] == ["Namespace", "Secret"]
    assert {"Deployment", "ClusterRoleBinding", "ConfigMap", "Role"} <= set(kinds)
    token = installer.token()
    assert installer.kept() == [digest(token).hex()]
    assert token.decode() not in said
    assert base64.b64encode(token).decode() not in said
    assert "Secret agentk-token: created" in said
    assert installer.server.authorization == {"Bearer of-the-user"}


def test_a_repetition_keeps_the_token(installer: Installer) -> None:
    installer.ok()
    token, kept = installer.token(), installer.kept()
    said = installer.ok()
    assert "created" not in said and "changed" not in said.replace("unchanged", "")
    said = installer.ok("--image", "r/txkas:2")
    assert "Deployment agentk: changed" in said
    assert (installer.token(), installer.kept()) == (token, kept)


def test_json(installer: Installer) -> None:
    found = json.loads(installer.ok("--output", "json"))
    assert (found["agent"], found["context"], found["connected"]) == (
        *("prod", "edge"),
        None,
    )
    assert found["objects"][1] == {
        "kind": "Secret",
        "namespace": "txkas",
        "name": "agentk-token",
        "outcome": "created",
    }


def test_rotate(installer: Installer) -> None:
    installer.ok()
    before = installer.token()
    installer.ok("--rotate", "--grace", "0")
    assert installer.token() != before
    assert installer.kept() == [digest(installer.token()).hex()]


def test_a_token_that_ends_is_not_kept(installer: Installer) -> None:
    """The agent was rotated elsewhere: the cluster's token is valid for hours only."""
    installer.ok()
    installer.kasctl.ok("agent", "rotate", "prod")
    kept = installer.kept()
    assert "does not contain its newest token: pass --rotate" in installer.fails()
    assert installer.kept() == kept


def test_an_agent_of_another_cluster(installer: Installer) -> None:
    installer.kasctl.ok("agent", "add", "prod")
    kept = installer.kept()
    assert "pass --rotate for a new one, or another name" in installer.fails()
    assert installer.server.changes() == []
    assert installer.kept() == kept
    installer.ok("--rotate")
    assert digest(installer.token()).hex() in installer.kept()


def test_the_namespace_of_another_agent(installer: Installer) -> None:
    """Its token is not replaced, whatever the options say."""
    installer.ok()
    before = installer.token()
    for more in (), ("--rotate",):
        said = installer.fails(*more, name="other")
        assert "belongs to the agent 'prod'; pass another --namespace" in said
    # Also while it is only valid for a grace period.
    installer.kasctl.ok("agent", "rotate", "prod")
    assert "belongs to the agent 'prod'" in installer.fails("--rotate", name="other")
    assert installer.token() == before
    assert installer.kept("other") == []


@pytest.mark.parametrize("data", [{"token": "eA=="}, {"token": "???"}, {}, None])
def test_an_unknown_token(installer: Installer, data: Any) -> None:
    """Perhaps another kas made it: replacing it is an explicit choice."""
    secret = {"kind": "Secret", "metadata": {"name": "agentk-token"}, "data": data}
    installer.server.objects[SECRET] = secret
    said = installer.fails()
    assert "has a token that this kas does not know; pass --rotate" in said
    assert installer.kept() == []
    installer.ok("--rotate")
    assert installer.kept() == [digest(installer.token()).hex()]


@pytest.mark.parametrize(
    ("part", "status", "says"),
    [
        ("/version", 401, "Unauthorized (401); check the credentials"),
        ("secrets/agentk-token", 403, "Unauthorized (403)"),
        ("clusterrolebindings/txkas-agentk dry-run", 403, "Unauthorized (403)"),
        ("namespaces/txkas dry-run", 403, "Unauthorized (403)"),
        ("deployments/agentk dry-run", 409, "--force-conflicts to take these fields"),
        ("secrets/agentk-token dry-run", 500, "(500)"),
    ],
)
def test_refused_before_a_token(
    installer: Installer, part: str, status: int, says: str
) -> None:
    """At most the namespace is made, without which the others cannot be tried."""
    installer.server.refusals[part] = (status, "Unauthorized")
    said = installer.fails()
    assert says in said
    assert "context 'edge'" in said
    inside = part in ("deployments/agentk dry-run", "secrets/agentk-token dry-run")
    expected = ["PATCH /api/v1/namespaces/txkas"] if inside else []
    assert installer.server.changes() == expected
    assert installer.kept() == []


def test_nothing_is_tried_with_a_token(installer: Installer) -> None:
    """The dry run has a placeholder, because no token exists yet."""
    encoded = base64.b64encode(PLACEHOLDER.encode()).decode()
    installer.server.refusals["agentk-token dry-run"] = (422, "{body}")
    assert encoded in installer.fails()


def test_an_api_server_that_quotes_the_token(installer: Installer) -> None:
    """A token that was refused is not valid, and is shown nowhere all the same."""
    installer.server.refusals[f"PATCH {SECRET}$"] = (422, "invalid: {body}")
    said = installer.fails()
    assert '"token": "..."' in said
    assert "No token was made" in said
    assert installer.kept() == []
    # So it is with a token that the cluster has, in a dry run.
    installer.server.refusals.clear()
    installer.ok()
    installer.server.refusals[f"PATCH {SECRET} dry-run$"] = (422, "invalid: {body}")
    assert '"token": "..."' in installer.fails()


def test_an_interruption_after_the_token(installer: Installer) -> None:
    installer.server.refusals[f"PATCH {DEPLOYMENT}$"] = (500, "etcd is away")
    said = installer.fails()
    assert "etcd is away (500).  The cluster has the token: repeat the command" in said
    token, kept = installer.token(), installer.kept()
    assert kept == [digest(token).hex()]
    installer.server.refusals.clear()
    installer.ok()
    assert (installer.token(), installer.kept()) == (token, kept)
    assert DEPLOYMENT in installer.server.objects


def test_force_conflicts(installer: Installer) -> None:
    installer.ok()
    assert not [one for one in installer.server.asked if "force" in one]
    installer.ok("--force-conflicts")
    assert f"PATCH {DEPLOYMENT} force" in installer.server.asked
    assert f"PATCH {DEPLOYMENT} dry-run force" in installer.server.asked


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: "{", "is not YAML (line 1)"),
        (lambda text: "[1]", "is not a kubeconfig"),
        (lambda text: "contexts: {a: b}", "Expected key name"),
        (lambda text: text.replace('"edge"', '"edgy"'), "did you mean 'edgy'?"),
        (lambda text: text.replace('"name": "c"', '"name": "d"'), "object with name c"),
        (lambda text: text.replace('"user": {', '"usr": {'), "Expected key user"),
        (lambda text: None, "does not exist"),
    ],
)
def test_a_wrong_context(installer: Installer, change: Any, says: str) -> None:
    text = change(installer.file.read_text())
    if text is None:
        installer.file.unlink()
    else:
        installer.file.write_text(text)
    said = installer.fails()
    assert says in said
    assert str(installer.file) in said
    assert "of-the-user" not in said
    assert installer.server.asked == []
    assert installer.kept() == []


def test_a_plugin_without_a_credential(installer: Installer) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", "echo log in first >&2; exit 3"],
    }
    kubeconfig(installer.file, installer.server.port, exec=plugin)
    assert "process returned 3. log in first" in installer.fails()
    assert installer.server.asked == []


def test_an_api_server_that_is_away(installer: Installer) -> None:
    port = int(free_address().rpartition(":")[2])
    kubeconfig(installer.file, port)
    said = installer.fails()
    assert f"(http://127.0.0.1:{port}): the API server does not respond (" in said
    assert "refused" in said
    assert installer.kept() == []


def test_no_kas(installer: Installer) -> None:
    """Nothing could connect; that is known beforehand."""
    said = installer.kasctl.fails(*installer.line(wait="1s"))
    assert "no kas runs with this state directory" in said
    assert "No token was made" in said
    assert installer.server.asked == []


def test_without_the_library(tmp_path: Path) -> None:
    """One line says how to install it, and the commands beside it work."""
    code = (
        "import sys\n"
        "sys.modules['kubernetes'] = sys.modules['kubernetes.client'] = None\n"
        "from kas.ctl import main\n"
        "main()"
    )
    line = ("agent", "install", "prod", "--context", "x", "--image", "i")
    options = ("--kas-address", "tls://192.0.2.2", "--system-cas", "--timeout", "0")
    state = ("--state-directory", str(tmp_path / "state"))
    done = subprocess.run(
        [sys.executable, "-c", code, *line, *options, *state],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "is not installed, and this command needs it: "
        "pip install 'txkas[server,kubeconfig]'"
    )
    assert "Traceback" not in done.stderr


def _template(image: str, **labels: str) -> dict[str, Any]:
    metadata = {"labels": {"app": "agentk", **labels}}
    return {"template": {"metadata": metadata, "spec": {"image": image}}}


class Wait:
    """A wait on a clock of its own, for pods that the test names."""

    def __init__(self, installer: Installer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.installer = installer
        self.now = 0.0
        self.connected: list[tuple[str, str]] = []
        self.slept = lambda: None
        monkeypatch.setattr(agents, "look", lambda ctl, kas: self._known())

    def _known(self) -> agents.Known:
        connections = [
            {"pod_namespace": namespace, "pod_name": pod}
            for namespace, pod in self.connected
        ]
        agent = {"agent_name": "prod", "connections": connections}
        return agents.Known({"1": agent})

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept()

    def deploy(self, *sets: str) -> None:
        """A Deployment whose new template these ReplicaSets have, beside an old one."""
        objects = self.installer.server.objects
        spec = _template("2")
        objects[DEPLOYMENT] = {"metadata": {"uid": "u"}, "spec": spec}
        for name, image in ("agentk-old", "1"), *((one, "2") for one in sets):
            meta = {"name": name, "ownerReferences": [{"uid": "u"}]}
            spec = _template(image, **{"pod-template-hash": name})
            objects[f"{SET}/{name}"] = {"metadata": meta, "spec": spec}

    def pod(self, name: str, **status: Any) -> None:
        pod = {"metadata": {"name": name}, "status": status}
        self.installer.server.objects[f"{POD}/{name}"] = pod

    def run(self, timeout: float = 5) -> str:
        ctl = Ctl(str(self.installer.kasctl.state), False)
        with connect(self.installer.file, "edge", {}) as cluster:
            return Waiting(
                *(ctl, cluster, "prod", "txkas", "kubectl --context edge"),
                seconds=lambda: self.now,
                sleep=self._sleep,
            ).wait(timeout)

    def fails(self) -> str:
        with pytest.raises(ConfigurationError) as caught:
            self.run()
        assert self.now == 5
        return "\n".join(caught.value.problems)


@pytest.fixture
def wait(installer: Installer, monkeypatch: pytest.MonkeyPatch) -> Wait:
    return Wait(installer, monkeypatch)


def test_connected_from_the_newest_pods(wait: Wait) -> None:
    """Pods of the revision before, and of other clusters, prove nothing."""
    wait.deploy("agentk-new")
    wait.connected = [("txkas", "agentk-old-1"), ("other", "agentk-new-1")]

    def slept() -> None:
        wait.connected.append(("txkas", "agentk-new-2"))

    wait.slept = slept
    assert wait.run() == "agentk-new-2"
    assert wait.now == 1


def test_not_connected_in_time(wait: Wait, capsys: pytest.CaptureFixture[str]) -> None:
    wait.deploy("agentk-new")
    wait.connected = [("txkas", "agentk-old-1")]
    wait.pod("agentk-old-1", phase="Running")
    wait.pod("agentk-new-1", phase="Running")
    said = wait.fails()
    assert "the agent prod is not connected after 5 s" in said
    assert "the pod agentk-new-1 is running but has not connected to kas" in said
    assert "connected only from older pods: agentk-old-1" in said
    assert "kubectl --context edge logs deployment/agentk" in said
    assert "kasctl doctor" in said
    # The same state is reported once.
    assert capsys.readouterr().err.count("agentk-new-1") == 1


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (
            {
                "containerStatuses": [
                    {
                        "state": {
                            "waiting": {
                                "reason": "ImagePullBackOff",
                                "message": "no\n\x1b[1mimage",
                            }
                        }
                    }
                ]
            },
            "agentk-new-1: ImagePullBackOff: no \\x1b[1mimage",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "ready": False,
                        "state": {"running": {}},
                        "lastState": {"terminated": {"reason": "Error", "exitCode": 2}},
                    }
                ]
            },
            "agentk-new-1: Error: exit status 2",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes",
                    }
                ],
            },
            "agentk-new-1: Unschedulable: 0/1 nodes",
        ),
        ({"phase": "Pending"}, "the pod agentk-new-1 is Pending"),
    ],
)
def test_why_a_pod_does_not_run(wait: Wait, status: Any, says: str) -> None:
    wait.deploy("agentk-new")
    wait.pod("agentk-new-1", **status)
    assert says in wait.fails()


def test_a_controller_that_is_late(wait: Wait) -> None:
    """The pods that it scales first are not taken for the new ones."""
    wait.deploy()
    wait.connected = [("txkas", "agentk-old-1")]
    assert "the cluster has not begun to create pods" in wait.fails()


def test_an_api_server_that_leaves(wait: Wait) -> None:
    """It may come back; only the end of the time ends the wait."""
    wait.deploy("agentk-new")
    wait.installer.server.refusals["replicasets"] = (503, "overloaded")
    assert "overloaded (503)" in wait.fails()
    wait.now = 0
    wait.connected = [("txkas", "agentk-new-1")]
    wait.slept = wait.installer.server.refusals.clear
    assert wait.run() == "agentk-new-1"


def test_the_whole_command(
    wait: Wait, installer: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDirectory.open(installer.kasctl.state)
    running.tell(state, [Opened("agents", "192.0.2.2:8150")])
    monkeypatch.setattr(install, "INTERVAL", 0.0)
    wait.connected = [("txkas", "agentk-new-1")]
    apply = installer.server.answer

    def answer(method: str, path: str, *rest: Any) -> tuple[int, Any]:
        found = apply(method, path, *rest)
        if method == "PATCH" and path == DEPLOYMENT and "dryRun" not in rest[0]:
            wait.deploy("agentk-new")
        return found

    monkeypatch.setattr(installer.server, "answer", answer)
    said = installer.kasctl.ok(*installer.line(wait="5s"))
    assert said == "the agent prod is connected, from the pod txkas/agentk-new-1\n"


def test_options_are_shared() -> None:
    """install has the options of manifest, and its own."""
    from kas.ctl.cli import cli

    context = click.Context(cli)
    group: Any = cli.get_command(context, "agent")
    found = []
    for name in ("manifest", "install"):
        parameters = group.get_command(context, name).params
        found.append({option for one in parameters for option in one.opts})
    assert found[0] - found[1] == {"--output-file"}
