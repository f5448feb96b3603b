"""What is wrong beyond single keys: our own address, and who listens where."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import pytest

from kas.config.loading import load
from tunnel.errors import ConfigurationError

PRIVATE = (
    "private_api:\n  listen:\n    address: {address}\n"
    "    authentication_secret_file: secret\n"
)


def problems(
    folder: Path, text: str, environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """What `load` says of a file."""
    (folder / "secret").write_bytes(base64.b64encode(b"s" * 32))
    (folder / "kas.yaml").write_text(text)
    try:
        load(folder / "kas.yaml", environ or {}, lambda: ["10.1.2.3"])
    except ConfigurationError as error:
        return error.problems
    return ()


def test_an_own_address_that_nobody_knows(tmp_path: Path) -> None:
    text = PRIVATE.format(address='":8155"')
    (problem,) = problems(tmp_path, text)
    assert "set OWN_PRIVATE_API_URL" in problem
    (problem,) = problems(tmp_path, text, {"OWN_PRIVATE_API_CIDR": "11.0.0.0/8"})
    assert "exactly one address of this machine, but contains none" in problem
    assert not problems(tmp_path, text, {"OWN_PRIVATE_API_CIDR": "10.0.0.0/8"})
    assert not problems(tmp_path, text, {"OWN_PRIVATE_API_URL": "tcp://kas"})


def test_beside_what_is_wrong_with_modules(tmp_path: Path) -> None:
    text = PRIVATE.format(address='":8155"') + "modules: {nothing: {}}\n"
    first, second = problems(tmp_path, text)
    assert "module nothing is not installed" in first
    assert "OWN_PRIVATE_API_URL" in second


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "agent: {listen: {address: 127.0.0.1:8151}}\n",
            "1:18: agent.listen.address: 127.0.0.1:8151 is also used by "
            "observability.listen.address, by default",
        ),
        (
            "observability: {listen: {address: ':8150'}}\n",
            "1:26: observability.listen.address: :8150 is also used by "
            "agent.listen.address, by default",
        ),
        (
            "agent: {kubernetes_api: {listen: {address: '127.0.0.1:8151'}}}\n",
            "1:35: agent.kubernetes_api.listen.address: 127.0.0.1:8151 is also used by "
            "observability.listen.address, by default",
        ),
        (
            PRIVATE.format(address="127.0.0.1:8150"),
            "3:5: private_api.listen.address: 127.0.0.1:8150 is also used by "
            "agent.listen.address, by default",
        ),
        (
            "web: {listen: {address: '127.0.0.1:8151'}}\n",
            "1:16: web.listen.address: 127.0.0.1:8151 is also used by "
            "observability.listen.address, by default",
        ),
        (
            "agent: {listen: {network: unix, address: /a}}\n"
            "observability: {listen: {network: unix, address: /a}}\n",
            "2:41: observability.listen.address: /a is also used by "
            "agent.listen.address, line 1",
        ),
    ],
)
def test_two_at_one_address(tmp_path: Path, text: str, said: str) -> None:
    """With the line of the later one, and what to do."""
    (problem,) = problems(tmp_path, text)
    assert problem.endswith(f"kas.yaml:{said}; give one of them another address")


@pytest.mark.parametrize(
    "text",
    [
        "agent: {listen: {address: '127.0.0.1:0'}}\n"
        "observability: {listen: {address: '127.0.0.1:0'}}\n",
        "agent: {listen: {address: '127.0.0.2:8151'}}\n",
        "agent: {listen: {endpoint: 'tcp:8151:interface=127.0.0.1'}}\n",
        "agent: {listen: {network: unix, address: /a}}\n",
        "web: {}\n",
        "web: {max_body_bytes: 1MiB, idle_timeout: 5s}\n",
    ],
)
def test_each_at_its_own(tmp_path: Path, text: str) -> None:
    assert not problems(tmp_path, text)


def test_secret_in_the_proxys_section(tmp_path: Path) -> None:
    """It is looked at when the file is checked."""
    file = tmp_path / "websockets"
    text = f"agent: {{kubernetes_api: {{websocket_token_secret_file: {file}}}}}\n"
    (problem,) = problems(tmp_path, text)
    assert "websocket_token_secret_file" in problem
    for content, what in (("A" * 40, "needs 32"), ("?", "does not contain base64")):
        file.write_text(content)
        (problem,) = problems(tmp_path, text)
        assert what in problem
    file.write_text("A" * 96)
    assert not problems(tmp_path, text)


def test_in_the_order_of_the_lines(tmp_path: Path) -> None:
    text = "modules:\n  nothing: {}\nagent:\n  kubernetes_api: {x: 1}\nnone: 1\n"
    lines = [one.split(":")[1] for one in problems(tmp_path, text)]
    assert lines == ["2", "4", "5"]


def test_sections_of_modules_below_agent(tmp_path: Path) -> None:
    """Only those that an installed module has there, and each once."""
    (problem,) = problems(tmp_path, "agent:\n  kubernets_api: {x: 1}\n")
    assert "2:3: agent: unknown key 'kubernets_api'" in problem
    assert problem.endswith("did you mean 'kubernetes_api'?")
    (problem,) = problems(tmp_path, "agent: {listn: {}}\n")
    assert problem.endswith("unknown key 'listn'; did you mean 'listen'?")
    (problem,) = problems(tmp_path, "agent: {kubernetes_api: here}\n")
    assert "unknown key" not in problem and "section" in problem
    (problem,) = problems(
        tmp_path, "modules: {kubernetes_api: {}}\nagent:\n  kubernetes_api: {}\n"
    )
    assert problem.endswith(
        "3:3: agent.kubernetes_api: is the same as modules.kubernetes_api; "
        "remove one of them"
    )


def test_the_external_api_brings_its_module(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(base64.b64encode(b"s" * 32))
    file = tmp_path / "kas.yaml"
    file.write_text("")
    assert [one.name for one in load(file)[1]] == ["kubernetes_api"]
    file.write_text("api: {listen: {authentication_secret_file: secret}}\n")
    assert [one.name for one in load(file)[1]] == [
        "agent_tracker",
        "configuration_project",
        "kubernetes_api",
        "notifications",
    ]


def test_pages_without_room(tmp_path: Path) -> None:
    """Limits of nothing are none."""
    text = "web: {max_body_bytes: 0, max_connections: 0, request_timeout: 0s}\n"
    said = problems(tmp_path, text)
    assert [one.count("must be more than 0") for one in said] == [1, 1, 1]


#: Every key that GitLab's kas documents, with its defaults.
OF_GITLAB = """\
gitlab:
  address: http://gitlab.test
  external_url: https://gitlab.test
  authentication_secret_file: secret
  api_rate_limit: {refill_rate_per_second: 50, bucket_size: 250}
agent:
  listen:
    network: tcp
    address: 127.0.0.1:8150
    websocket: true
    connections_per_token_per_minute: 40000
    max_connection_age: 7200s
    listen_grace_period: 5s
  configuration: {poll_period: 300s, max_configuration_file_size: 131072}
  gitops:
    poll_period: 300s
    project_info_cache_ttl: 300s
    project_info_cache_error_ttl: 60s
    max_manifest_file_size: 5242880
    max_total_manifest_file_size: 20971520
    max_number_of_paths: 100
    max_number_of_files: 1000
  kubernetes_api:
    listen:
      network: tcp
      address: 0.0.0.0:8154
      listen_grace_period: 5s
      shutdown_grace_period: 3600s
    url_path_prefix: /
    allowed_agent_cache_ttl: 60s
    allowed_agent_cache_error_ttl: 10s
    extra_allowed_response_headers: [X-Request-Id]
    websocket_token_secret_file: long_secret
  info_cache_ttl: 300s
  info_cache_error_ttl: 60s
  redis_conn_info_ttl: 300s
  redis_conn_info_refresh: 240s
  redis_conn_info_gc: 600s
  remote_development: {poll_period: 15s}
observability:
  usage_reporting_period: 60s
  listen: {network: tcp, address: 127.0.0.1:8151}
  prometheus: {url_path: /metrics}
  tracing: {otlp_endpoint: "http://localhost:4317", otlp_token_secret_file: secret}
  sentry: {dsn: "", environment: ""}
  logging: {level: info, grpc_level: error}
  google_profiler: {enabled: false, project_id: "", credentials_file: ""}
  liveness_probe: {url_path: /liveness}
  readiness_probe: {url_path: /readiness}
gitaly:
  global_api_rate_limit: {refill_rate_per_second: 30, bucket_size: 70}
  per_server_api_rate_limit: {refill_rate_per_second: 15, bucket_size: 40}
redis:
  server: {address: "127.0.0.1:6379"}
  dial_timeout: 5s
  write_timeout: 3s
  key_prefix: gitlab-kas
  username: ""
  network: tcp
  tls: {enabled: false}
  database_index: 0
  pool_size: 5
  read_timeout: 1s
  idle_timeout: 50s
api:
  listen:
    network: tcp
    address: 127.0.0.1:8153
    authentication_secret_file: secret
    max_connection_age: 7200s
    listen_grace_period: 5s
private_api:
  listen:
    network: tcp
    address: 127.0.0.1:8155
    authentication_secret_file: secret
    max_connection_age: 7200s
    listen_grace_period: 5s
"""


def test_a_file_of_gitlabs_kas(tmp_path: Path) -> None:
    """It is taken as it is; what changes nothing here is said, at its line."""
    (tmp_path / "secret").write_bytes(base64.b64encode(b"s" * 32))
    (tmp_path / "long_secret").write_bytes(base64.b64encode(b"s" * 72))
    file = tmp_path / "kas.yaml"
    file.write_text(OF_GITLAB)
    remarks: list[str] = []
    load(file, {}, lambda: ["10.1.2.3"], remarks.append)
    lines = OF_GITLAB.splitlines()
    named = set()
    for remark in dict.fromkeys(remarks):
        line, what = int(remark.split(":")[1]), remark.split("'")[1]
        assert lines[line - 1].strip().startswith((f"{what}:", "logging:")), remark
        named.add(what)
    assert named == {
        *("max_connection_age", "remote_development"),
        *("project_info_cache_ttl", "project_info_cache_error_ttl"),
        *("redis_conn_info_ttl", "redis_conn_info_refresh", "redis_conn_info_gc"),
        *("listen_grace_period", "shutdown_grace_period"),
        "grpc_level",
        *("google_profiler", "pool_size", "read_timeout", "idle_timeout"),
    }


@pytest.mark.parametrize("empty", ["", " {}", " ~", "\n  # command: x"])
def test_a_file_of_the_linux_package(tmp_path: Path, empty: str) -> None:
    """It writes an empty ``config:`` into every file."""
    file = tmp_path / "kas.yaml"
    file.write_text(f"workspaces:\n  enabled: false\nconfig:{empty}\n")
    remarks: list[str] = []
    load(file, {}, list, remarks.append)
    assert [one.split("'")[1] for one in remarks[:2]] == ["workspaces", "config"]


def test_a_command_of_the_linux_package(tmp_path: Path) -> None:
    """What it prints would be missing."""
    file = tmp_path / "kas.yaml"
    file.write_text('config:\n  command: "/opt/extra-config"\n')
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{file}:1:1: 'config' is a key of GitLab's kas whose")
    assert "copy the command's output into this file" in problem


def test_answers_that_are_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "kas.yaml"
    file.write_text("agent: {info_cache_ttl: 0s, info_cache_error_ttl: 0s}")
    configuration, _ = load(file)
    assert configuration.agent.info_cache_ttl == 0
