"""The external API of a real kas, asked by grpcio and by curl."""

from __future__ import annotations

import base64
import http.server
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.integration import needs
from tests.integration.echo_module import DROPIN
from tests.integration.module_kas import ModuleKas, python_path
from tests.integration.processes import (
    ROOT,
    Process,
    clean_environment,
    eventually,
    kasctl,
    twistd,
)
from tunnel import __version__
from tunnel.toolkit.traces import new_trace_id

SECRET = secrets.token_bytes(32)

_API = """\
api:
  listen:
    address: 127.0.0.1:0
    development_certificate: %s
    authentication_secret_file: secret
    listen_grace_period: 0s
"""

TRACKER = "gitlab.agent.agent_tracker.rpc.AgentTracker/GetConnectedAgents"


def token(secret: bytes = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """Sign a token as GitLab does; a claim that is None is left out."""
    now = time.time()
    content = {
        "iss": "gitlab.example.com",
        "aud": "gitlab-kas",
        "exp": now + 60,
        "iat": now,
        **claims,
    }
    given = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(given, secret, algorithm)


class Api(ModuleKas):
    """A kas with the external API and the module ``echo``."""

    def __init__(self, folder: Path, *, tls: bool = False, more: str = "") -> None:
        super().__init__(folder, "echo", DROPIN, _API % str(tls).lower() + more)
        (folder / "secret").write_bytes(base64.b64encode(SECRET))
        self.authority = self.state / "ca.crt" if tls else None
        self.start()
        self.address = f"127.0.0.1:{self.port('the external API')}"

    def grpc(self, scenario: str, with_token: str = "") -> Any:
        """What the client saw in a scenario."""
        done = subprocess.run(
            self.command(scenario, with_token),
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
            env=clean_environment(python_path()),
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def command(self, scenario: str, with_token: str = "") -> list[str]:
        """How to run it."""
        return [
            sys.executable,
            "-m",
            "tests.integration.grpc_client",
            self.address.replace("127.0.0.1", "localhost"),
            with_token or token(),
            scenario,
            *([str(self.authority)] if self.authority else []),
        ]

    def curl(self, path: str, body: str, *options: str) -> tuple[int, str]:
        """POST with curl: the status, and the body."""
        if shutil.which("curl") is None:
            needs.missing("curl", "apt-get install curl")
        done = subprocess.run(
            [
                "curl",
                *("-sS", "--noproxy", "*", "-w", "\n%{http_code}"),
                *("-H", f"Authorization: Bearer {token()}"),
                *("-H", "Content-Type: application/json"),
                *("--data-binary", body),
                *options,
                f"http://{self.address}/{path}",
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text

    def stop(self) -> None:
        """End it, and see that it ends well."""
        assert self.process.stops_cleanly()
        self.process.kill()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One for all tests that leave it running."""
    api = Api(tmp_path_factory.mktemp("external"))
    yield api
    said = api.process.said()
    api.stop()
    assert "eyJ" not in said, "a token is in the log"
    assert "Unhandled" not in said


def test_agents(api: Api) -> None:
    """Nobody is connected, and that is an answer."""
    assert api.grpc("agents") == {"one": {}, "several": {}}


def test_about(api: Api) -> None:
    """GitLab asks for the version, and probes ask for the health."""
    seen = api.grpc("about")
    version = seen["info"]["currentServerInfo"]["version"]
    assert version == __version__
    assert seen["health"] == seen["of a service"] == seen["watch"]
    assert seen["health"] == {"status": "SERVING"}
    assert seen["of another"][0] == "NOT_FOUND"
    assert seen["without token"][0] == "UNAUTHENTICATED"
    assert seen["watch without token"][0] == "UNAUTHENTICATED"


def test_refusals(api: Api) -> None:
    """Without a good token one does not even learn what there is."""
    seen = api.grpc("refusals")
    for name in ("none", "wrong", "basic", "large", "unknown without token"):
        code, text = seen[name]
        assert code == "UNAUTHENTICATED", (name, text)
        assert text.startswith("JWT validation failed: "), name
    assert seen["empty"][0] == "INVALID_ARGUMENT"
    code, text = seen["unknown"]
    assert code == "UNIMPLEMENTED"
    assert text.startswith("/no.Such/Method is not served here [trace ")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda: token(secrets.token_bytes(32)), "signature"),
        (lambda: token(aud="gitlab"), "audience"),
        (lambda: token(exp=time.time() - 120), "check the clocks"),
        (lambda: token(nbf=time.time() + 300), "check the clocks"),
        (lambda: jwt.encode({"aud": "gitlab-kas"}, "", "none"), "algorithm"),
    ],
    ids=["secret", "audience", "expired", "early", "none"],
)
def test_wrong_token(api: Api, bad: Callable[[], str], says: str) -> None:
    """Each is refused with its reason."""
    code, text = api.grpc("refusals", bad())["empty"]
    assert code == "UNAUTHENTICATED"
    assert says in text


@pytest.mark.parametrize("issuer", ["gitlab", "gitlab.example.org", None])
def test_any_issuer(api: Api, issuer: str | None) -> None:
    """Secret and audience decide: GitLab signs with its own host name."""
    code, text = api.grpc("refusals", token(iss=issuer))["empty"]
    assert code == "INVALID_ARGUMENT", text


def test_restricted_issuer(tmp_path: Path) -> None:
    """``issuer`` leaves one."""
    api = Api(tmp_path, more="    issuer: gitlab.example.org\n")
    try:
        good = token(iss="gitlab.example.org")
        assert api.grpc("refusals", good)["empty"][0] == "INVALID_ARGUMENT"
        for other in ("gitlab", None):
            code, text = api.grpc("refusals", token(iss=other))["empty"]
            assert code == "UNAUTHENTICATED"
            assert "issuer" in text
    finally:
        api.stop()


def test_all_kinds_of_calls(api: Api) -> None:
    """Unary and streams in each direction; both at once do not wait for each other."""
    assert api.grpc("echo") == {
        "say": "HELLO",
        "spell": ["x", "y", "z"],
        "join": "abc",
        "chat": ["ONE", "TWO", "BYE"],
    }


def test_errors(api: Api) -> None:
    """Statuses, deadlines, metadata and sizes as gRPC wants them."""
    seen = api.grpc("errors")
    # Texts of errors are one line for whoever logs them.
    code, text = seen["refuse"]
    assert code == "PERMISSION_DENIED"
    assert text.startswith("not you: ünïcode  % [trace ")
    code, text = seen["crash"]
    assert code == "INTERNAL"
    assert "secret" not in text
    assert seen["late"][0] == "DEADLINE_EXCEEDED"
    assert seen["soon"]
    assert seen["metadata"] == ["here", "echo"]
    assert seen["large"] == 4 * 1024 * 1024 - 100
    assert seen["too large"][0] == "RESOURCE_EXHAUSTED"
    assert seen["gzip"][0] == "UNIMPLEMENTED"


def test_details(api: Api) -> None:
    """grpcio reads what programs are told; of trailers too large for it, the status."""
    kind = "type.googleapis.com/google.rpc.BadRequest"
    trace = len(f" [trace {new_trace_id()}]")
    assert api.grpc("explained") == [
        ["INVALID_ARGUMENT", 1 + trace, 3, [kind]],
        ["INVALID_ARGUMENT", 1000 + trace, 3, [kind]],
        ["INVALID_ARGUMENT", 1500 + trace, 0, []],
    ]


def test_cancel(api: Api) -> None:
    """An endless stream that the client leaves; the connection goes on."""
    assert api.grpc("cancel") == {"first": [10_000] * 3, "after": "A"}


def test_client_says_goaway(api: Api) -> None:
    """Node's `session.close()` is a GOAWAY, and it waits for what runs."""
    done = subprocess.run(
        [
            needs.program("node", "apt-get install nodejs"),
            ROOT / "tests" / "integration" / "javascript" / "goaway.js",
            f"http://{api.address}",
            token(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    numbers = [{"text": str(number)} for number in range(5)]
    assert json.loads(done.stdout) == [*numbers, {}], done.stderr


def test_many_and_bulk(api: Api) -> None:
    """No limit stands in the way of an honest client."""
    assert api.grpc("many") == 1000
    assert api.grpc("bulk") == 160 * 65536


def test_over_tls_and_drained(tmp_path: Path) -> None:
    """ALPN chooses HTTP/2, and what runs is finished when kas is told to stop."""
    api = Api(tmp_path, tls=True)
    assert api.grpc("echo")["say"] == "HELLO"
    client = subprocess.Popen(
        api.command("drain"),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=clean_environment(python_path()),
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "running\n"
    # The call has to be there before the order to stop.
    api.process.wait_for("a slow call runs")
    api.stop()
    assert json.loads(client.stdout.readline()) == "SLOW"
    assert client.wait(20) == 0
    client.stdout.close()


class _ApiServer(http.server.BaseHTTPRequestHandler):
    """As much of a Kubernetes API server as agentk asks at its start."""

    def do_GET(self) -> None:
        body = b'{"major": "1", "minor": "36", "gitVersion": "v1.36.1"}'
        self.send_response(200 if self.path == "/version" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of one."""
    with http.server.HTTPServer(("127.0.0.1", 0), _ApiServer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        path = tmp_path / "kubeconfig"
        address = f"http://127.0.0.1:{server.server_port}"
        path.write_text(
            f"clusters: [{{name: c, cluster: {{server: '{address}'}}}}]\n"
            "users: [{name: u, user: {}}]\n"
            "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
            "current-context: x\n"
        )
        yield path
        server.shutdown()
        thread.join(10)


def test_connected_agent(api: Api, cluster: Path, tmp_path: Path) -> None:
    """A real agentk, by gRPC and by kasctl; and gone when it is."""
    agent_token = tmp_path / "token"
    kasctl("agent", "add", "prod", "--token-file", agent_token, state=api.state)
    agentk = Process(
        "agentk",
        twistd(
            "agentk",
            *("--kas-address", f"tcp://127.0.0.1:{api.port('agents')}"),
            *("--token-file", agent_token),
            *("--kubeconfig", cluster),
            *("--observability-listen-address", "127.0.0.1:0"),
        ),
        tmp_path / "agentk.log",
        environment={"POD_NAMESPACE": "ns", "POD_NAME": "agentk-0"},
    )

    def status() -> Any:
        done = kasctl(
            "status",
            *("--server", f"http://{api.address}"),
            *("--secret-file", api.folder / "secret"),
            *("--output", "json"),
            state=api.state,
        )
        return json.loads(done.stdout)["agents"]

    def told() -> Any:
        """Once it has said what its cluster is."""
        agents = status()
        versions = [one["meta"].get("kubernetesVersion", {}) for one in agents]
        return agents if any(one.get("gitVersion") for one in versions) else None

    try:
        (agent,) = eventually(told)
        assert agent["agentName"] == "prod"
        assert agent["meta"]["podName"] == "agentk-0"
        assert agent["meta"]["kubernetesVersion"]["gitVersion"] == "v1.36.1"
        seen = api.grpc("agents")
        (info,) = seen["one"]["agents"]
        assert info == seen["several"]["agents"][0]
        assert info["agentId"] == agent["agentId"] == "1"
        assert int(info["connectionId"]) > 0
        assert agentk.stops_cleanly()
        eventually(lambda: not status())
    finally:
        agentk.kill()


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_curl(api: Api, version: str) -> None:
    """JSON, by a client that knows nothing of any of this."""
    said = "tests.proto.Echo/Say"
    assert api.curl(said, '{"text": "hi"}', version) == (
        200,
        '{"text":"HI"}'.replace(":", ": "),
    )
    status, text = api.curl(TRACKER, "{}", version)
    assert (status, json.loads(text)["code"]) == (400, "invalid_argument")
    assert api.curl(TRACKER, '{"agentId": "1"}', version) == (200, "{}")
    status, text = api.curl(said, "{", version)
    assert (status, json.loads(text)["code"]) == (400, "invalid_argument")
    status, text = api.curl("no.Such/Method", "{}", version)
    assert (status, json.loads(text)["code"]) == (501, "unimplemented")
    bad = ("-H", "Authorization: Bearer nonsense")
    assert api.curl(said, "{}", version, *bad)[0] == 401
    late = ("-H", "Connect-Timeout-Ms: 200")
    status, text = api.curl(said, '{"text": "wait"}', version, *late)
    assert (status, json.loads(text)["code"]) == (504, "deadline_exceeded")
    squeezed = ("-H", "Content-Encoding: gzip")
    assert api.curl(said, "{}", version, *squeezed)[0] == 501
    assert api.curl(said, "", version, "-H", "Content-Type: text/plain")[0] == 415
    assert api.curl(said, "", version, "-X", "GET")[0] == 405


def test_secret_is_replaced(tmp_path: Path) -> None:
    """The new one is in force a moment later, without a restart."""
    api = Api(tmp_path)
    new = secrets.token_bytes(32)
    assert api.grpc("refusals", token(new))["empty"][0] == "UNAUTHENTICATED"
    (tmp_path / "secret.new").write_bytes(base64.b64encode(new))
    os.rename(tmp_path / "secret.new", tmp_path / "secret")
    eventually(
        lambda: api.grpc("refusals", token(new))["empty"][0] == "INVALID_ARGUMENT"
    )
    api.process.wait_for("secret .* read again")
    api.stop()
