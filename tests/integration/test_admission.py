"""The admission webhook of agentk, called by a real API server."""

from __future__ import annotations

import base64
import json
import signal
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentk.policy.admission.certificates import OVERLAP
from agentk.policy.floor import WEBHOOK_SECRET
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas, metric
from tests.integration.test_policy import CONFIG_MAP, PolicyStand, marked_as
from tools.ports import free_port

_RULES = """\
- {name: bob, deny: [create], resources: [configmaps], users: ["bob@*"]}
"""

USER, OTHER = "alice@example.org", "bob@example.org"
#: Seconds within which the API server notices a new registration.
_SOON = 30


class AdmissionStand(PolicyStand):
    """agentk with a webhook, and requests beside it."""

    def __init__(self, folder: Path, kas: Kas, cluster: ControlPlane) -> None:
        super().__init__(folder, kas, cluster)
        self.write(1, _RULES)
        self.port = free_port()
        options = {
            "policy": {
                "file": str(self.policy),
                "admission": {
                    "address": f"127.0.0.1:{self.port}",
                    "url": f"https://127.0.0.1:{self.port}",
                },
            }
        }
        (folder / "agentk.yaml").write_text(yaml.safe_dump(options))
        self.options = (*self.options, "--namespace", self.own)

    def make_agentk(self) -> Agentk:
        """Return agentk with an account and a namespace of its own."""
        self.own = f"of-{self.namespace}"
        self.cluster.add_namespace(self.own)
        kubeconfig = self.folder / "account.kubeconfig"
        self.cluster.add_account(self.own, "agentk", kubeconfig)
        return Agentk(self.kas, self.kas.add_agent("main"), kubeconfig)

    def write_as(self, user: str, mark: str = "", group: str = "dev") -> str:
        """
        Create a ConfigMap as a user, beside agentk: as with a stolen token.

        :param mark: the value of the mark; empty for no mark.
        :returns: the message of the API server; empty if it created the object.
        """
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        fields = marked_as(user, group, mark)
        return self.cluster.refusal("POST", path, fields, CONFIG_MAP)

    def secret(self) -> Any:
        """The Secret with the certificates."""
        path = f"/api/v1/namespaces/{self.own}/secrets/{WEBHOOK_SECRET}"
        return self.cluster.call("GET", path)

    def turn_back(self, which: str, seconds: float) -> None:
        """Let a certificate seem older, and let agentk look."""
        secret = self.secret()
        key = f"{which}.json"
        created, names = json.loads(base64.b64decode(secret["data"][key]))
        text = json.dumps([created - seconds, names]).encode()
        secret["data"][key] = base64.b64encode(text).decode()
        path = f"/api/v1/namespaces/{self.own}/secrets/{WEBHOOK_SECRET}"
        self.cluster.call("PUT", path, secret)
        self.signal(signal.SIGHUP)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to agentk."""
        assert self.agentk.process is not None
        self.agentk.process.child.send_signal(number)

    @property
    def name(self) -> str:
        """Name of the registration."""
        return f"agentk-policy-{self.own}"

    def presented(self) -> str:
        """The certificate that the webhook presents."""
        return ssl.get_server_certificate(("127.0.0.1", self.port))


@pytest.fixture
def admitted(
    tmp_path: Path, lone_kas: Kas, control_plane: ControlPlane
) -> Iterator[AdmissionStand]:
    """Everything, started."""
    stand = AdmissionStand(tmp_path, lone_kas, control_plane)
    lone_kas.start()
    control_plane.add_namespace(stand.namespace)
    for user in (USER, OTHER):
        control_plane.permit(
            user,
            stand.namespace,
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
        )
    stand.agentk.start(*stand.options)
    yield stand
    kubectl = stand.kubectl(control_plane.admin)
    kubectl("delete", "validatingwebhookconfiguration", stand.name)
    kubectl("delete", "clusterrolebinding", f"{stand.own}-agentk")
    for one in (stand.namespace, stand.own):
        control_plane.remove_namespace(one)
    if stand.agentk.process is not None:
        stand.signal(signal.SIGCONT)
        stand.agentk.process.kill()


def test_webhook(admitted: AdmissionStand) -> None:
    """It decides on what came through agentk, and on nothing else."""
    stand = admitted
    alice = stand.user("alice", "--as", USER, "--group", "dev")
    mark = stand.own
    eventually(lambda: alice("get", "configmaps").code == 0, _SOON)

    def refused() -> bool:
        return "the rule 'bob' denies it" in stand.write_as(OTHER, mark)

    # With the mark: agentk itself has refused such a request already.
    eventually(refused, _SOON, "the webhook is in effect")
    said = stand.write_as(OTHER, mark)
    assert 'admission webhook "policy.agentk.txkas.dev" denied the request' in said
    assert stand.write_as(USER, mark) == ""
    said = stand.write_as(USER, mark, group="other")
    assert "kas may not claim the group 'other'" in said
    # Without it, and with that of another agentk.
    assert stand.write_as(OTHER) == ""
    assert stand.write_as(OTHER, "another") == ""
    # Through kas and agentk.
    count = partial(
        metric,
        stand.agentk.observability,
        'agentk_policy_admissions_total{result="allowed"}',
    )
    before = count()
    alice.ok("create", "configmap", "x")
    assert count() == before + 1
    assert alice.ok("auth", "can-i", "create", "configmaps") == "yes\n"
    assert USER in alice.ok("auth", "whoami")
    # A kas cannot remove the registration, and not hide behind a mark of its own.
    root = stand.user("root", "--as-agent")
    done = root("delete", "validatingwebhookconfiguration", stand.name)
    assert b"it would change how admission enforces" in done.err, done.err

    # Rotation: no request fails.
    first = stand.presented()
    stand.turn_back("current", 70 * 86_400)
    eventually(lambda: "following.crt" in stand.secret()["data"], _SOON)
    assert stand.write_as(USER, mark) == ""
    stand.turn_back("following", OVERLAP.total_seconds() + 60)
    end = time.monotonic() + _SOON
    while stand.presented() == first:
        assert stand.write_as(USER, mark) == ""
        assert time.monotonic() < end
    for _ in range(20):
        assert stand.write_as(USER, mark) == ""

    # Slow: the API server waits for three seconds, and only for such requests.
    stand.signal(signal.SIGSTOP)
    begun = time.monotonic()
    said = stand.write_as(USER, mark)
    assert "failed calling webhook" in said, said
    assert time.monotonic() - begun < 15
    assert stand.write_as(USER) == ""
    stand.signal(signal.SIGCONT)
    eventually(lambda: stand.write_as(USER, mark) == "", _SOON)

    # Away.
    assert stand.agentk.process is not None
    stand.agentk.process.kill()
    assert "failed calling webhook" in stand.write_as(USER, mark)
    assert stand.write_as(USER) == ""
