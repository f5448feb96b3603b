"""What `kasctl` takes back ends what runs, within seconds."""

from __future__ import annotations

import json
from collections.abc import Callable

import attrs
import pytest

from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import Kubectl
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas

MakeKubectl = Callable[..., Kubectl]

#: What is promised; kas looks at its file every two.
SECONDS = 10


@pytest.fixture(scope="module")
def with_pods(shared_namespace: str, make_kubectl: MakeKubectl) -> str:
    """A namespace with pods."""
    pods.start_pods(make_kubectl("direct", namespace=shared_namespace))
    return shared_namespace


@pytest.mark.parametrize("transport", ["websocket", "spdy"])
def test_user(
    transport: str, with_pods: str, make_kubectl: MakeKubectl, kas: Kas, agentk: Agentk
) -> None:
    """Watches, logs and terminals of a revoked user end; those of others do not."""
    name = f"guest-{transport}"
    others = make_kubectl("proxied", namespace=with_pods, transport=transport)
    guest = attrs.evolve(others, kubeconfig=kas.add_user(name))
    rest = ("-c", "echo", "--", "sh", "-c", "echo begun; cat")
    with (
        guest.start("get", "pods", "-w", "-o=name") as watch,
        guest.start("logs", "-f", "main", "-c", "tick", "--tail=1") as logs,
        guest.start("exec", "-i", "main", *rest, stdin=True) as run,
        others.start("exec", "-i", "main", *rest, stdin=True) as other,
    ):
        assert watch.line() and watch.line()
        assert logs.line().startswith(b"tick")
        assert run.line() == other.line() == b"begun\n"
        kas.ctl("user", "revoke", name)
        # Over SPDY kubectl takes the end of the connection for that of the command.
        assert run.ended(SECONDS).code != 0 or transport == "spdy"
        logs.ended(SECONDS)
        watch.ended(SECONDS)
        other.write(b"still here\n")
        assert other.line() == b"still here\n"
    again = guest("get", "pods")
    assert again.code == 1
    assert b"Unauthorized" in again.err or b"logged in" in again.err, again.err
    kas.ctl("user", "revoke", name)


def test_agent(
    control_plane: ControlPlane,
    kas: Kas,
    make_kubectl: MakeKubectl,
    with_pods: str,
) -> None:
    """The tunnel of a revoked agent ends, and it does not come back."""
    agentk = Agentk(kas, kas.add_agent("doomed"), control_plane.agent, "doomed")
    process = agentk.start()
    try:
        kubeconfig = kas.add_user("witness", agent="doomed")
        way = kas.way("witness")
        assert way.ask("GET", "/readyz").body == b"ok"
        kubectl = attrs.evolve(
            make_kubectl("proxied", namespace=with_pods), kubeconfig=kubeconfig
        )
        with kubectl.start("logs", "-f", "main", "-c", "tick", "--tail=1") as logs:
            assert logs.line().startswith(b"tick")
            kas.ctl("agent", "revoke", "doomed")
            logs.ended(SECONDS)
        eventually(lambda: not agentk.ready(), SECONDS, "the tunnel ends")
        answer = way.ask("GET", "/readyz")
        assert answer.status in (403, 404, 503), answer
        assert json.loads(answer.body)["kind"] == "Status"
        assert "doomed" not in [one["agent_name"] for one in kas.status()["agents"]]
        process.wait_for(r"(?i)revoked|unauthenticated|not valid|refused", SECONDS)
        assert process.child.poll() is None
    finally:
        agentk.stop()


def test_rotation(control_plane: ControlPlane, kas: Kas) -> None:
    """A new token in the file is used for the next connection; nothing is cut."""
    token = kas.add_agent("turning")
    agentk = Agentk(kas, token, control_plane.agent, "turning")
    agentk.start()
    try:
        generation = _generation(kas)
        kas.ctl("agent", "rotate", "turning", "--grace", "1h", "--token-file", token)
        kas.add_user("after-rotation", agent="turning")
        assert _generation(kas) == generation
    finally:
        agentk.stop()
    agentk.start()
    assert agentk.stop()


def _generation(kas: Kas) -> object:
    found = [one for one in kas.status()["agents"] if one["agent_name"] == "turning"]
    return found[0]["instance_id"], found[0]["generation"]
