"""The real Prometheus, behind a real API server, agentk and kas."""

from __future__ import annotations

import json
import secrets
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.integration import needs
from tests.integration.cluster import ControlPlane
from tests.integration.processes import Process, eventually
from tests.integration.rawhttp import Answer, Way
from tests.integration.stack import Agentk, Kas, metric
from tools.ports import free_port

_SETTINGS = """\
modules:
  prometheus: {{}}
web:
  listen:
    address: "127.0.0.1:{port}"
    development_certificate: true
"""

_SCRAPES = """\
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: prometheus
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
- job_name: other
  static_configs:
  - targets: ["127.0.0.1:{port}"]
    labels: {{cluster: own}}
"""

FORM = "Content-Type: application/x-www-form-urlencoded"
API = "/agents/main/prometheus/api/v1"


def own_address() -> str:
    """An address of this machine that Kubernetes accepts for endpoints."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            needs.missing("an address that is not a loopback address", "ip addr add")
        address: str = probe.getsockname()[0]
        return address


class PrometheusProcess:
    """Debian's Prometheus, which scrapes itself."""

    def __init__(self, folder: Path) -> None:
        program = needs.program("prometheus", "apt-get install prometheus")
        self.port = free_port()
        folder.mkdir()
        (folder / "prometheus.yml").write_text(_SCRAPES.format(port=self.port))
        self.process = Process(
            "prometheus",
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=0.0.0.0:{self.port}",
            ],
            folder / "prometheus.log",
        )
        eventually(self.has_data, 60, "Prometheus has scraped itself")

    def has_data(self) -> bool:
        try:
            return len(self.ask("query", query="up")["data"]["result"]) == 2
        except OSError:
            return False

    def ask(self, endpoint: str, **parameters: str) -> Any:
        """What it answers without kas."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{endpoint}?{urlencode(parameters)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=30) as answer:
            return json.loads(answer.read())


class PromStand:
    """kas, agentk, a cluster with a Service, and the Prometheus behind it."""

    def __init__(
        self,
        folder: Path,
        kas: Kas,
        cluster: ControlPlane,
        prometheus: PrometheusProcess,
    ) -> None:
        self.folder = folder
        self.kas = kas
        self.cluster = cluster
        self.prometheus = prometheus
        self.namespace = f"prom-{secrets.token_hex(4)}"
        self.web_port = 0
        self.agents: dict[str, Agentk] = {}
        self.services: list[str] = []

    def add_agent(self, name: str) -> Agentk:
        """Start an agentk that reaches Services through the API server."""
        options = self.folder / "agentk.yaml"
        options.write_text("modules:\n  prometheus: {reach: api-server}\n")
        token = self.kas.add_agent(name)
        agentk = Agentk(self.kas, token, self.cluster.agent, name=f"agentk-{name}")
        self.agents[name] = agentk
        return agentk

    def add_service(self, name: str, port: int) -> None:
        """
        Add a Service that our label selects, and a pod with the address of this
        machine, on which *port* is Prometheus'.
        """
        labels = {"app": name}
        core = f"/api/v1/namespaces/{self.namespace}"
        pod = {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                # No kubelet runs it.
                "schedulerName": "nobody",
                "containers": [{"name": "main", "image": "example.org/prometheus"}],
            },
        }
        self.cluster.call("POST", f"{core}/pods", pod)
        pod = self.cluster.call("GET", f"{core}/pods/{name}")
        address = own_address()
        pod["status"] = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.cluster.call("PUT", f"{core}/pods/{name}/status", pod)
        service = {
            "metadata": {"name": name, "labels": {"txkas/prometheus": "true"}},
            "spec": {
                "selector": labels,
                "ports": [
                    {"name": "sidecar", "port": 8080},
                    {"name": "web", "port": 9090, "targetPort": port},
                ],
            },
        }
        self.cluster.call("POST", f"{core}/services", service)
        # The API server only proxies to addresses of pods.
        reference = {"kind": "Pod", "namespace": self.namespace, "name": name}
        subset = {
            "addresses": [{"ip": address, "targetRef": reference}],
            "ports": [{"name": "web", "port": port}],
        }
        self.cluster.call(
            "POST",
            f"{core}/endpoints",
            {"metadata": {"name": name}, "subsets": [subset]},
        )
        self.services.append(name)
        path = f"{core}/services/{name}:web/proxy/-/ready"
        eventually(lambda: self.is_reached(path), 60, "the Service has endpoints")

    def is_reached(self, path: str) -> bool:
        """Tell whether the API server reaches Prometheus."""
        try:
            self.cluster.call("GET", path)
        except urllib.error.HTTPError:
            return False
        except ValueError:
            # The response is not JSON.
            return True
        return True

    def remove_service(self, name: str) -> None:
        """Remove a Service."""
        path = f"/api/v1/namespaces/{self.namespace}/services/{name}"
        self.cluster.call("DELETE", path)
        self.services.remove(name)

    def permit(self, user: str) -> None:
        """Give a user the right to ask the Service ``prom`` only."""
        rule = {
            "apiGroups": [""],
            "resources": ["services/proxy"],
            "resourceNames": ["prom"],
            "verbs": ["get"],
        }
        self.cluster.permit(user, self.namespace, rule)

    def user(self, name: str, *access: str) -> Way:
        """Add a user who is *name* in the cluster."""
        rights = access or ("--as", name)
        self.kas.add_user(name, *rights, wait="--read-only" not in rights)
        return self.kas.way(name)

    def fleet(self, token: str, path: str) -> tuple[int, Any]:
        """Ask several clusters."""
        way = Way("fleet", self.web_port, self.kas.authority, token)
        answer = way.ask("GET", f"/fleet/prometheus/api/v1/{path}")
        return answer.status, json.loads(answer.body)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusProcess]:
    """A Prometheus that no test stops."""
    found = PrometheusProcess(tmp_path_factory.mktemp("p") / "prometheus")
    yield found
    found.process.kill()


@pytest.fixture
def stand(
    tmp_path: Path,
    lone_kas: Kas,
    control_plane: ControlPlane,
    prometheus: PrometheusProcess,
) -> Iterator[PromStand]:
    """Everything, started."""
    stand = PromStand(tmp_path, lone_kas, control_plane, prometheus)
    stand.web_port = free_port()
    lone_kas.settings = _SETTINGS.format(port=stand.web_port)
    control_plane.add_namespace(stand.namespace)
    stand.add_service("prom", prometheus.port)
    main, second = stand.add_agent("main"), stand.add_agent("second")
    lone_kas.start()
    for one in (main, second):
        one.start("--configuration-file", str(tmp_path / "agentk.yaml"))
    yield stand
    for name in tuple(stand.services):
        stand.remove_service(name)
    control_plane.remove_namespace(stand.namespace)
    for one in (main, second):
        if one.process is not None:
            one.process.kill()


def data_of(answer: Answer, status: int = 200) -> Any:
    """Return the envelope of an answer."""
    assert answer.status == status, answer.body
    assert answer.field("Content-Type").startswith("application/json")
    return json.loads(answer.body)


def test_one_cluster(stand: PromStand) -> None:
    """A user with the right to the Service reads; everything else is refused."""
    reader, stranger = stand.user("reader"), stand.user("stranger")
    stand.permit("reader")
    at = str(time.time())
    query = urlencode({"query": "prometheus_build_info * 2", "time": at})

    def permitted() -> Answer | None:
        answer = reader.ask("GET", f"{API}/query?{query}")
        return answer if answer.status == 200 else None

    by_get = data_of(eventually(permitted, 60, "the right is in effect"))
    by_post = data_of(reader.ask("POST", f"{API}/query", FORM, body=query.encode()))
    direct = stand.prometheus.ask("query", query="prometheus_build_info * 2", time=at)
    assert by_get == by_post == direct
    assert direct["data"]["result"]
    names = data_of(reader.ask("GET", f"{API}/label/job/values"))
    assert names["data"] == ["other", "prometheus"]
    # The error is Prometheus' own.
    broken = data_of(reader.ask("GET", f"{API}/query?query=sum("), 400)
    assert broken["errorType"] == "bad_data" and "parse error" in broken["error"]

    refused = data_of(stranger.ask("GET", f"{API}/query?{query}"), 403)
    assert "get services/proxy" in refused["error"]
    assert f"{stand.namespace}/prom" in refused["error"]
    for method, path, status in [
        ("POST", f"{API}/admin/tsdb/delete_series?match[]=up", 404),
        ("POST", "/agents/main/prometheus/-/quit", 404),
        ("GET", "/agents/main/prometheus/federate?match[]=up", 404),
        ("GET", f"{API}/../v1/admin/tsdb/snapshot", 404),
        ("DELETE", f"{API}/series?match[]=up", 405),
    ]:
        data_of(reader.ask(method, path), status)
    twice = reader.ask("POST", f"{API}/query?query=up", FORM, body=query.encode())
    assert "in the URL and in the body" in data_of(twice, 400)["error"]
    unknown = Way("x", reader.port, reader.ca_file, "user:main:wrong")
    assert data_of(unknown.ask("GET", f"{API}/labels"), 401)["status"] == "error"

    # A read-only user may send a POST here, and nowhere else.
    watcher = stand.user("watcher", "--as", "reader", "--read-only")
    eventually(
        lambda: watcher.ask("GET", f"{API}/labels").status == 200,
        30,
        "the user is known",
    )
    data_of(watcher.ask("POST", f"{API}/query", FORM, body=query.encode()))
    data_of(watcher.ask("GET", "/agents/main/prometheus/discovery"), 403)

    shown = json.loads(stand.kas.ctl("prometheus", "main", "--output", "json"))
    assert shown["target"]["name"] == "prom" and shown["target"]["port"] == "web"
    (taken,) = [one for one in shown["steps"] if one["outcome"] == "taken"]
    assert "version 2." in taken["reason"] or "version 3." in taken["reason"]
    main = stand.agents["main"]
    assert main.metric('agentk_prometheus_questions_total{result="refused"}') >= 1
    port = stand.kas.observability
    assert metric(port, "kas_prometheus_requests_total") >= 10


def test_two_candidates(stand: PromStand) -> None:
    """agentk does not choose; the choice is the label's, and it is shown."""
    admin = stand.user("boss", "--as-agent")
    data_of(admin.ask("GET", f"{API}/labels"))
    stand.add_service("other", stand.prometheus.port)
    text = stand.kas.ctl("prometheus", "main", "--again")
    assert f"{stand.namespace}/other" in text and "candidate" in text
    refused = data_of(admin.ask("GET", f"{API}/labels"), 503)
    assert "2 candidates" in refused["error"]
    assert f"{stand.namespace}/other" in refused["error"]
    stand.remove_service("other")
    assert "taken" in stand.kas.ctl("prometheus", "main", "--again")
    data_of(admin.ask("GET", f"{API}/labels"))


def test_several_clusters(stand: PromStand) -> None:
    """Series of each cluster have its name, and a missing cluster is named."""
    file = stand.kas.folder / "everywhere.token"
    stand.kas.ctl(
        *("user", "add", "everywhere", "--as-agent", "--token-file", file),
        *("--agent", "main", "--agent", "second"),
    )
    token = file.read_text().strip()
    both = "clusters=main,second"

    def answered() -> Any:
        status, found = stand.fleet(token, f"query?query=up&{both}")
        return found if status == 200 and "warnings" not in found else None

    found = eventually(answered, 60, "both clusters answer")
    series = found["data"]["result"]
    assert {one["metric"]["cluster"] for one in series} == {"main", "second"}
    assert len({one["value"][0] for one in series}) == 1
    query = urlencode({"query": "count by (cluster, job) (up)"})
    _, found = stand.fleet(token, f"query?{query}&{both}")
    assert [one["value"][1] for one in found["data"]["result"]] == ["1"] * 4
    status, found = stand.fleet(token, f"query?query=sum(up)&{both}")
    assert status == 422 and "by (cluster)" in found["error"]
    _, found = stand.fleet(token, f"label/cluster/values?{both}")
    assert found["data"] == ["main", "second"]

    def counted(query: str) -> list[tuple[dict[str, str], str]]:
        _, found = stand.fleet(token, f"query?{urlencode({'query': query})}&{both}")
        return [(one["metric"], one["value"][1]) for one in found["data"]["result"]]

    # Each cluster has a series with a label "cluster" of its own.
    main, second = {"cluster": "main"}, {"cluster": "second"}
    assert counted("count by (cluster) (up)") == [(main, "2"), (second, "2")]
    own = counted('count by (cluster, exported_cluster) (up{exported_cluster="own"})')
    assert own == [({"exported_cluster": "own"} | one, "1") for one in (main, second)]
    _, found = stand.fleet(token, f"label/exported_cluster/values?{both}")
    assert found["data"] == ["own"]
    assert stand.agents["second"].stop()
    status, found = stand.fleet(token, f"series?match[]=up&{both},nowhere")
    assert status == 200 and len(found["data"]) == 2
    assert [one.partition(":")[0] for one in found["warnings"]] == [
        "cluster nowhere is missing",
        "cluster second is missing",
    ]


def test_a_large_answer(stand: PromStand) -> None:
    """The response ends at its limit, and neither program collects it."""
    admin = stand.user("boss", "--as-agent")
    end = time.time()
    query = urlencode(
        {
            "query": '{__name__=~".+"}',
            "start": str(end - 10),
            "end": str(end),
            "step": "0.001",
        }
    )
    data_of(admin.ask("GET", f"{API}/labels"))
    agentk = stand.agents["main"].process
    kas = stand.kas.process
    assert agentk is not None and kas is not None
    before = kas.resident() + agentk.resident()
    with admin.connect() as connection:
        connection.send(admin.head("GET", f"{API}/query_range?{query}"))
        _, status, _, _ = connection.head()
        assert status == 200
        rest = connection.rest()
    assert 15 * 2**20 < len(rest) < 18 * 2**20
    assert not rest.endswith(b"0\r\n\r\n")
    assert kas.resident() + agentk.resident() - before < 24 * 2**20
    # The next question has its turn.
    data_of(admin.ask("GET", f"{API}/labels"))
