"""kubectl reads a real cluster from agentk's cache, beside the ordinary endpoint."""

from __future__ import annotations

import json
import re
import secrets
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import Done, Kubectl, Running
from tests.integration.processes import eventually
from tests.integration.rawhttp import Connection, Way
from tests.integration.stack import Agentk, Kas, metric
from tests.integration.test_clients import check_gitlabs_watch_manager
from tests.integration.test_gitops_drift import deployment

_ROLES = "/apis/rbac.authorization.k8s.io/v1"

#: Durations, which differ between two commands.
_AGE = re.compile(r"\b(?:\d+[smhdy])+\b *")

READERS, BROWSERS = 20, 100


class CacheStand:
    """kas, agentk with ``cluster_data``, and kubectl at both endpoints."""

    def __init__(self, kas: Kas, cluster: ControlPlane) -> None:
        self.folder = kas.folder
        self.kas = kas
        self.cluster = cluster
        self.namespace = f"cache-{secrets.token_hex(4)}"
        # Tests that run at the same time have agentk in this cluster, too: this one has
        # its own account and its own Lease.
        self.own_namespace = f"{self.namespace}-own"
        for one in (self.namespace, self.own_namespace):
            cluster.add_namespace(one)
        kubeconfig = self.folder / "agentk.kubeconfig"
        self.account = cluster.add_account(self.own_namespace, "agentk", kubeconfig)
        self.agentk = Agentk(kas, kas.add_agent("main"), kubeconfig)

    @property
    def core(self) -> str:
        """The path of the namespace."""
        return f"/api/v1/namespaces/{self.namespace}"

    def user(self, name: str) -> None:
        """Add a user who is *name* in the cluster."""
        self.kas.add_user(name, "--as", name)

    def kubectl(self, user: str) -> Kubectl:
        """Return kubectl with the ordinary endpoint."""
        return Kubectl(
            self.cluster.assets / "kubectl",
            self.folder / f"{user}.kubeconfig",
            self.namespace,
            cache=self.folder / "discovery",
        )

    def cached(self, user: str, *arguments: str) -> list[str]:
        """Return arguments for the cache."""
        server = f"https://127.0.0.1:{self.kas.proxy}/agents/main/cache"
        return ["--server", server, *arguments]

    def both(self, user: str, *arguments: str) -> tuple[str, str]:
        """Return the output from the cache and from the API server."""
        kubectl = self.kubectl(user)
        return kubectl.ok(*self.cached(user, *arguments)), kubectl.ok(*arguments)

    def refused(self, user: str, *arguments: str) -> Done:
        """Return the end of a command that the cache refuses."""
        done = self.kubectl(user)(*self.cached(user, *arguments))
        assert done.code != 0, done.text
        return done

    def watch(self, user: str, *arguments: str) -> Running:
        """Let kubectl watch the cache."""
        return self.kubectl(user).start(*self.cached(user, *arguments))

    def permit(self, user: str, *resources: str) -> None:
        """Let a user read resources of the namespace."""
        rule = {
            "apiGroups": [""],
            "resources": resources,
            "verbs": ["get", "list", "watch"],
        }
        self.cluster.permit(user, self.namespace, rule)

    def wait_for(self, user: str) -> None:
        """Wait until the cache answers, and the right of a user is in effect."""
        kubectl, command = self.kubectl(user), self.cached(user, "get", "configmaps")
        eventually(lambda: kubectl(*command).code == 0, 60, "the cache answers")

    def revoke(self, user: str) -> None:
        """Take the rights away."""
        api = f"{_ROLES}/namespaces/{self.namespace}"
        self.cluster.call("DELETE", f"{api}/rolebindings/{user}")

    def add(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Add a ConfigMap."""
        found = {
            "metadata": {"name": name, "labels": labels or {}},
            "data": {"colour": "green", "size": "3"},
        }
        self.cluster.call("POST", f"{self.core}/configmaps", found)

    def requests(self, resource: str, events: list[Any]) -> list[str]:
        """Return the verbs of agentk's requests for all objects of a kind."""
        return [
            one["verb"]
            for one in events
            if (one.get("objectRef") or {}).get("resource") == resource
            and one["user"]["username"] == self.account
            # agentk does not send this field.
            and "userAgent" not in one
        ]


@pytest.fixture
def caching(
    tmp_path: Path, lone_kas: Kas, control_plane: ControlPlane
) -> Iterator[CacheStand]:
    """Everything, started."""
    lone_kas.settings = "modules:\n  cluster_data: {}\n"
    stand = CacheStand(lone_kas, control_plane)
    agentk = stand.agentk
    lone_kas.start()
    options = tmp_path / "agentk.yaml"
    options.write_text("modules:\n  cluster_data: {}\n")
    own = ("--namespace", stand.own_namespace)
    agentk.start("--configuration-file", str(options), *own)
    yield stand
    for one in (stand.namespace, stand.own_namespace):
        control_plane.remove_namespace(one)
    if agentk.process is not None:
        agentk.process.kill()


def plain(text: str) -> str:
    """Return a table without durations."""
    return "\n".join(_AGE.sub("#", line).rstrip() for line in text.splitlines())


def test_the_same_as_the_api_server(caching: CacheStand) -> None:
    """Commands that read have the same output; all others name the other endpoint."""
    stand = caching
    stand.kas.add_user("boss")
    stand.add("one", {"app": "web"})
    stand.add("two", {"app": "api"})
    path = f"/apis/apps/v1/namespaces/{stand.namespace}/deployments"
    stand.cluster.call("POST", path, deployment(stand.namespace))
    for arguments in [
        ("get", "configmaps"),
        ("get", "configmaps", "-o", "wide"),
        ("get", "configmaps", "-o", "yaml"),
        ("get", "configmaps", "-o", "json", "-l", "app=web"),
        ("get", "configmaps", "-l", "app!=web", "--show-labels"),
        ("get", "configmap", "one"),
        ("get", "configmap", "one", "-o", "yaml"),
        ("get", "configmaps", "--field-selector", "metadata.name=two"),
        ("describe", "configmap", "one"),
        ("get", "namespaces", stand.namespace, "-o", "yaml"),
        ("get", "serviceaccounts,configmaps"),
        ("get", "clusterroles"),
        ("get", "crds"),
        ("get", "nodes", "-o", "wide"),
        ("get", "deployments,replicasets,pods", "-o", "wide"),
        ("get", "pods", "-o", "yaml"),
        ("get", "events", "-A"),
        ("get", "events.events.k8s.io"),
        ("wait", "configmap/one", "--for=jsonpath={.data.size}=3"),
        ("explain", "configmaps.data"),
        ("auth", "can-i", "list", "pods"),
        ("api-resources",),
    ]:
        eventually(partial(_are_equal, stand, arguments), 30, " ".join(arguments))

    missing = stand.refused("boss", "get", "configmap", "three")
    assert b'configmaps "three" not found' in missing.err
    secret = stand.refused("boss", "get", "secrets")
    assert b"never contains Secrets" in secret.err
    for arguments in [
        ("delete", "configmap", "one"),
        ("label", "configmap", "one", "a=b"),
        ("create", "configmap", "four"),
    ]:
        assert b"ordinary endpoint" in stand.refused("boss", *arguments).err
    assert stand.cluster.call("GET", f"{stand.core}/configmaps/one")
    done = stand.refused("boss", "get", "configmaps", "--as", "somebody")
    assert b"do not impersonate" in done.err


def _are_equal(stand: CacheStand, arguments: tuple[str, ...]) -> bool:
    cached, direct = stand.both("boss", *arguments)
    if plain(cached) != plain(direct):
        print("cache:", plain(cached), "API server:", plain(direct), sep="\n")
        return False
    return True


def test_one_watch_for_all_readers(caching: CacheStand) -> None:
    """The API server has one request, and each reader sees each change."""
    stand = caching
    stand.kas.add_user("boss")
    stand.add("one")
    kubectl = stand.kubectl("boss")
    kubectl.ok(*stand.cached("boss", "api-resources"))
    audit = stand.cluster.audit()
    with ExitStack() as readers:
        watches = [
            readers.enter_context(stand.watch("boss", "get", "configmaps", "-w"))
            for _ in range(READERS)
        ]
        for one in watches:
            while b"one" not in one.line(60):
                pass
        stand.add("two", {"app": "web"})
        for one in watches:
            assert re.match(rb"two +2 +\d+s", one.line())
        stand.cluster.call("DELETE", f"{stand.core}/configmaps/two")
        for one in watches:
            assert b"two" in one.line()
        count = metric(stand.agentk.observability, "agentk_cluster_data_watches")
        assert count == READERS
    assert stand.requests("configmaps", audit.events()) == ["watch"]
    eventually(
        lambda: metric(stand.agentk.observability, "agentk_cluster_data_watches") == 0
    )


class Browser:
    """A page of GitLab with aggregated watches of one namespace."""

    def __init__(self, stand: CacheStand, user: str, **params: str) -> None:
        token = stand.kas.bearer(user)
        self._end = ExitStack()
        self._socket = self._end.enter_context(
            connect(
                f"wss://localhost:{stand.kas.proxy}/watch",
                ssl=ssl.create_default_context(cafile=stand.kas.authority),
                proxy=None,
                close_timeout=0.05,
                subprotocols=[Subprotocol("gitlab-agent-watch-api")],
                additional_headers={"Authorization": f"Bearer {token}"},
            )
        )
        asked = {"version": "v1", "namespace": stand.namespace, **params}
        message = {"type": "watch", "watch_id": "one", "watch_params": asked}
        self._socket.send(json.dumps(message))

    def until(self, kind: str, name: str) -> None:
        """Read events until one of this type and name."""
        while True:
            message = json.loads(self._socket.recv(60))
            assert message["type"] == "event", message
            found = message["watchEvent"]
            if (found["type"], found["object"]["metadata"]["name"]) == (kind, name):
                return

    def refusal(self) -> str:
        """Return the error in the next message; empty if it is an event."""
        message: Any = json.loads(self._socket.recv(60))
        if message["type"] == "event":
            return ""
        return str(message["error"]["object"]["message"])

    def close(self) -> None:
        self._end.close()


def test_one_watch_for_all_browsers(caching: CacheStand) -> None:
    """The API server has one request for all aggregated watches, with their rights."""
    stand = caching
    for name in ("page", "stranger"):
        stand.user(name)
    stand.permit("page", "configmaps")
    stand.add("one")
    audit = stand.cluster.audit()
    stand.wait_for("page")
    browsers: list[Browser] = []
    try:
        for _ in range(BROWSERS):
            browsers.append(Browser(stand, "page", resource="configmaps"))
        for one in browsers:
            one.until("ADDED", "one")
        stand.add("two")
        for one in browsers:
            one.until("ADDED", "two")
        stand.cluster.call("DELETE", f"{stand.core}/configmaps/two")
        for one in browsers:
            one.until("DELETED", "two")
        watches = metric(stand.agentk.observability, "agentk_cluster_data_watches")
        assert watches == BROWSERS
        verbs = stand.requests("configmaps", audit.events())
        print(f"{BROWSERS} browsers, requests at the API server: {verbs}")
        assert verbs == ["watch"]
        # A user without the right gets the answer of the API server.
        stranger = Browser(stand, "stranger", resource="configmaps")
        browsers.append(stranger)
        assert 'User "stranger" cannot watch' in stranger.refusal()
        # So does a user whose right is revoked.
        stand.revoke("page")
        number = iter(range(1000))

        def has_ended() -> str:
            stand.add(f"later-{next(number)}")
            return browsers[0].refusal()

        # At most ten seconds, and what the API server needs itself.
        text = eventually(has_ended, 30, "the watch has ended")
        assert 'User "page" cannot watch' in text
    finally:
        for one in browsers:
            one.close()


def test_gitlabs_watch_manager(caching: CacheStand) -> None:
    """GitLab's own library, whose watches the cache answers."""
    stand = caching
    kubeconfig = stand.kas.add_user("page")
    stand.wait_for("page")
    check_gitlabs_watch_manager(kubeconfig, stand.namespace)
    name = 'kas_cluster_data_cached_watches_total{outcome="%s"}'
    counts = [
        metric(stand.kas.observability, name % outcome)
        for outcome in ("answered", "refused")
    ]
    # The third one is for a kind that does not exist.
    assert counts == [2, 1]


def test_rights(caching: CacheStand) -> None:
    """A user sees one namespace, and nothing once the right is revoked."""
    stand = caching
    stand.user("reader")
    # Built-in roles such as "view" also permit to read the Namespace itself.
    stand.permit("reader", "configmaps", "namespaces")
    stand.add("one")
    kubectl = stand.kubectl("reader")
    eventually(
        lambda: kubectl(*stand.cached("reader", "get", "configmaps")).code == 0,
        30,
        "the right is in effect",
    )
    for arguments in [
        ("get", "configmaps", "-A"),
        ("get", "configmaps", "-n", "default"),
        ("get", "configmap", "one", "-n", "kube-system"),
        ("get", "pods"),
        ("get", "configmaps", "-A", "-w"),
    ]:
        assert b"forbidden" in stand.refused("reader", *arguments).err, arguments
    space = f"/api/v1/namespaces/{stand.namespace}"
    assert kubectl.ok(*stand.cached("reader", "get", "--raw", space))
    for path in ("namespaces", "namespaces/kube-system", "namespaces?watch=1"):
        refused = stand.refused("reader", "get", "--raw", f"{space}/{path}")
        assert b"the server could not find" in refused.err.lower(), path
    with stand.watch("reader", "get", "configmaps", "-w") as watch:
        while b"one" not in watch.line(60):
            pass
        stand.add("two")
        assert b"two" in watch.line()
        stand.revoke("reader")
        number = iter(range(1000))

        def has_ended() -> bool:
            stand.add(f"later-{next(number)}")
            return watch.child.poll() is not None or b"orbidden" in watch.line(2)

        # At most ten seconds, and what the API server needs itself.
        eventually(has_ended, 30, "the watch has ended")
    assert b"forbidden" in stand.refused("reader", "get", "configmaps").err


def test_versions(caching: CacheStand) -> None:
    """Versions of lists and watches mean what they mean at the API server."""
    stand = caching
    stand.kas.add_user("boss")
    stand.add("one")
    way = stand.kas.way("boss")
    path = f"/agents/main/cache{stand.core}/configmaps"

    def ask(query: str, status: int = 200) -> Any:
        answer = way.ask("GET", f"{path}?{query}")
        assert answer.status == status, answer.body
        return json.loads(answer.body)

    listed = ask("limit=1")
    version = listed["metadata"]["resourceVersion"]
    assert {one["metadata"]["name"] for one in listed["items"]} >= {"one"}
    stand.add("two")
    (line,) = lines(way, f"{path}?watch=true&resourceVersion={version}", 1)
    assert (line["type"], line["object"]["metadata"]["name"]) == ("ADDED", "two")
    assert line["object"]["kind"] == "ConfigMap"
    (expired,) = lines(way, f"{path}?watch=true&resourceVersion=1", 1)
    assert (expired["type"], expired["object"]["reason"]) == ("ERROR", "Expired")
    assert expired["object"]["code"] == 410
    assert ask("continue=abc", 410)["reason"] == "Expired"
    late = ask("resourceVersion=999999999", 504)
    assert late["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    found = lines(way, f"{path}?{query}&allowWatchBookmarks=true", 4)
    names = {one["object"]["metadata"].get("name") for one in found}
    assert names >= {"one", "two"}
    annotations = found[-1]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


def lines(way: Way, target: str, count: int) -> list[Any]:
    """Return the first lines of a watch."""
    with Connection(way) as connection:
        connection.send(way.head("GET", target))
        status = connection.head()[1]
        assert status == 200
        text = b""
        while text.count(b"\n") < count:
            text += connection.chunk()
    return [json.loads(line) for line in text.splitlines()[:count]]
