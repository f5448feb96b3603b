"""
kubectl's commands that ask and change, at the API server and through kas.

Each row of commands runs in two namespaces, once each way, and must print the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import PATIENT, Kubectl
from tests.integration.processes import eventually
from tests.integration.transcript import Transcript

MakeKubectl = Callable[..., Kubectl]
Row = Callable[[Transcript], None]
Both = Callable[[Row], None]

CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: plan, labels: {app: plan}}
data: {colour: blue, text: "two\\nlines, and an umlaut: ü"}
"""


@pytest.fixture(params=["own", "machine"])
def version(request: pytest.FixtureRequest) -> str:
    """Which kubectl."""
    return str(request.param)


@pytest.fixture
def both(
    version: str, make_kubectl: MakeKubectl, control_plane: ControlPlane
) -> Iterator[Both]:
    """Run a row of commands both ways, and compare."""
    made: list[str] = []

    def run(row: Row) -> None:
        kept = []
        for way in "direct", "proxied":
            # The same length, because tables are as wide as what is in them.
            name = f"{row.__name__.replace('_', '-')}-{version}-{way:-<7}x"
            control_plane.add_namespace(name)
            made.append(name)
            transcript = Transcript(make_kubectl(way, version, name))
            row(transcript)
            kept.append(transcript.steps)
        direct, proxied = kept
        assert direct, "nothing was compared"
        for one, other in zip(direct, proxied, strict=True):
            assert other == one

    yield run
    for name in made:
        control_plane.remove_namespace(name)


def test_discovery(both: Both) -> None:
    """What the API server can do, and what it knows of itself."""

    def discovery(t: Transcript) -> None:
        assert "deployments" in t.run("api-resources", "--sort-by=name")
        assert "apps/v1" in t.run("api-versions")
        assert "restartPolicy" in t.run("explain", "pod.spec")
        assert "FIELDS" in t.run("explain", "deployment", "--recursive")
        assert "Server Version" in t.run("version")
        assert t.run("get", "--raw", "/readyz") == "ok"
        assert "paths" in t.run("get", "--raw", "/openapi/v3/apis/apps/v1")
        assert "gitVersion" in t.run("get", "--raw", "/version?pretty=true")
        t.run("get", "--raw", "/nowhere", code=1)
        t.run("get", "nothings", code=1)
        assert "node-0" in t.run("get", "nodes", "-o", "wide")

    both(discovery)


def test_rights(both: Both) -> None:
    """Who one is, and what one may do."""

    def rights(t: Transcript) -> None:
        assert "kube-system:agent" in t.run("auth", "whoami")
        assert "kube-system:agent" in t.run("auth", "whoami", "-o", "json")
        assert t.run("auth", "can-i", "*", "*") == "yes\n"
        assert "selfsubjectaccessreviews" in t.run("auth", "can-i", "--list")
        someone = ("--as", "eve", "--as-group", "nobodies")
        assert t.run("auth", "can-i", "get", "pods", *someone, code=1) == "no\n"
        t.run("get", "pods", *someone, code=1)
        assert "eve" in t.run("auth", "whoami", *someone, "--as-uid", "7")
        t.run("create", "serviceaccount", "robot")
        assert t.run("create", "token", "robot", "--duration", "10m").startswith("eyJ")

    both(rights)


def test_objects(both: Both) -> None:
    """Made, shown in every form, changed in every manner, and deleted."""

    def objects(t: Transcript) -> None:
        t.run("create", "-f", "-", input=CONFIG_MAP)
        t.run("create", "-f", "-", input=CONFIG_MAP, code=1)
        assert "plan" in t.run("get", "configmaps")
        assert "plan" in t.run("get", "cm", "plan", "-o", "json")
        assert "ü" in t.run("get", "cm", "plan", "-o", "yaml")
        assert t.run("get", "cm", "-l", "app=plan", "-o", "name") == "configmap/plan\n"
        t.run("get", "cm", "--field-selector", "metadata.name=plan", "--show-labels")
        assert "blue" in t.run("describe", "cm", "plan", ordered=False)
        t.run("get", "cm", "nothing", code=1)
        t.run("label", "cm", "plan", "tier=a b", code=1)
        t.run("label", "cm", "plan", "tier=front")
        t.run("annotate", "cm", "plan", "note=an ünusual & long=value")
        t.run("patch", "cm", "plan", "--type=merge", "-p", '{"data":{"colour":"red"}}')
        operation = '[{"op":"add","path":"/data/size","value":"9"}]'
        t.run("patch", "cm", "plan", "--type=json", "-p", operation)
        missing = '[{"op":"remove","path":"/data/none"}]'
        t.run("patch", "cm", "plan", "--type=json", "-p", missing, code=1)
        found = json.loads(t.run("get", "cm", "plan", "-o", "json"))
        assert found["data"]["colour"] == "red" and found["data"]["size"] == "9"
        t.run("replace", "-f", "-", input=CONFIG_MAP)
        t.run("get", "events", "--sort-by=.metadata.name")
        t.run("delete", "cm", "plan", "--dry-run=server")
        t.run("delete", "cm", "plan", "--wait")
        t.run("delete", "cm", "plan", code=1)

    both(objects)


def test_apply(both: Both) -> None:
    """By the client, by the server, in conflict, and by force."""
    other = CONFIG_MAP.replace("blue", "green")

    def apply(t: Transcript) -> None:
        assert "created" in t.run("apply", "-f", "-", input=CONFIG_MAP)
        assert "unchanged" in t.run("apply", "-f", "-", input=CONFIG_MAP)
        t.run("diff", "-f", "-", input=CONFIG_MAP)
        assert "+  colour: green" in t.run("diff", "-f", "-", input=other, code=1)
        assert "configured" in t.run("apply", "-f", "-", input=other)
        t.run("delete", "cm", "plan")
        server = ("apply", "--server-side", "-f", "-", "--field-manager")
        t.run(*server, "one", input=CONFIG_MAP)
        t.run(*server, "two", input=other, code=1)
        assert 'conflict with "one"' in t.steps[-1].err
        t.run(*server, "two", "--force-conflicts", input=other)
        t.run("get", "cm", "plan", "-o", "yaml", "--show-managed-fields")
        t.run(*server, "two", input="apiVersion: v1\nkind: Nothing", code=1)

    both(apply)


def test_workload(both: Both) -> None:
    """A Deployment rolls out, is scaled, patched and restarted."""

    def workload(t: Transcript) -> None:
        t.run("create", "deployment", "web", "--image=any")
        t.run("wait", "--for=condition=Available", "deploy/web", PATIENT)
        t.run("get", "deploy,replicasets")
        containers = '[{"name":"any","env":[{"name":"A","value":"1"}]}]'
        patch = f'{{"spec":{{"template":{{"spec":{{"containers":{containers}}}}}}}}}'
        t.run("patch", "deploy", "web", "--type=strategic", "-p", patch)
        assert _rolled_out(t)
        t.run("scale", "deploy/web", "--replicas=2")
        assert _rolled_out(t)
        t.run("rollout", "restart", "deploy/web")
        assert _rolled_out(t)
        assert "3" in t.run("rollout", "history", "deploy/web")
        t.run("rollout", "undo", "deploy/web", "--to-revision=1")
        t.run("set", "image", "deploy/web", "any=other")
        found = json.loads(
            t.run("get", "deploy", "web", "-o=jsonpath={.spec.template}")
        )
        assert found["spec"]["containers"][0]["image"] == "other"
        t.run("delete", "deploy", "web", "--cascade=foreground", PATIENT)

    both(workload)


def _rolled_out(t: Transcript) -> bool:
    # It reports what it sees on the way, which depends on time.
    command = ("rollout", "status", "deploy/web", PATIENT)
    return "successfully rolled out" in t.kubectl.ok(*command)


@pytest.mark.parametrize("way", ["direct", "proxied"])
def test_get_watch(
    way: str, version: str, namespace: str, make_kubectl: MakeKubectl
) -> None:
    """`get -w` shows what is there, then what comes."""
    kubectl = make_kubectl(way, version, namespace)
    kubectl.ok("create", "configmap", "first")
    command = ("get", "configmaps", "-w", "--no-headers", "-o=name")
    with kubectl.start(*command) as watch:
        names = {watch.line(), watch.line()}
        assert names == {b"configmap/first\n", b"configmap/kube-root-ca.crt\n"}
        kubectl.ok("create", "configmap", "second")
        assert watch.line() == b"configmap/second\n"
        kubectl.ok("label", "configmap", "first", "changed=yes")
        assert watch.line() == b"configmap/first\n"
        kubectl.ok("delete", "configmap", "second")
        assert watch.line() == b"configmap/second\n"


@pytest.mark.parametrize("way", ["direct", "proxied"])
def test_wait(
    way: str, version: str, namespace: str, make_kubectl: MakeKubectl
) -> None:
    """`wait` sees a change that comes while it waits."""
    kubectl = make_kubectl(way, version, namespace)
    kubectl.ok("create", "configmap", "slow")
    wanted = "--for=jsonpath={.data.done}=yes"
    with kubectl.start("wait", "configmap/slow", wanted, "--timeout=90s") as waiting:
        kubectl.ok("patch", "configmap", "slow", "-p", '{"data":{"done":"yes"}}')
        assert waiting.ended().out == b"configmap/slow condition met\n"


@pytest.mark.parametrize("way", ["direct", "proxied"])
def test_proxy(
    way: str, version: str, namespace: str, make_kubectl: MakeKubectl
) -> None:
    """`kubectl proxy` in front of either."""
    from tests.integration.stack import fetch

    kubectl = make_kubectl(way, version, namespace)
    with kubectl.start("proxy", "--port=0") as proxy:
        port = int(proxy.line().rpartition(b":")[2])
        for _ in range(3):
            status, body = eventually(
                lambda: fetch(port, f"/api/v1/namespaces/{namespace}"), 10
            )
            assert (status, json.loads(body)["kind"]) == (200, "Namespace")
