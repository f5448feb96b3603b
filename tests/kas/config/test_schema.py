"""kas' configuration: names, defaults, and the answer to what is not there yet."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest

from kas.config.schema import (
    KasConfiguration,
    read_configuration,
    read_configuration_file,
)
from kas.state import pki
from kas.state.directory import StateDirectory
from tests.kas.configuring import problems
from tests.tunnel.transport import certificates
from tunnel.config import keys

EXAMPLE = Path(__file__).parents[3] / "docs" / "kas.example.yaml"


def test_defaults() -> None:
    got = read_configuration_file(None)
    # Without a file, kas also serves the page, for this machine alone.
    assert attrs.evolve(got, web=None) == read_configuration("", "kas.yaml")
    assert got.web is not None
    assert got.web.listen.address == "127.0.0.1:8156"
    assert (
        got.agent.listen.endpoint_string()
        == "tcp:8150:interface=127.0.0.1:backlog=4096"
    )
    assert got.agent.listen.listen_grace_period == 5.0
    assert got.agent.modules == {}
    assert got.observability.listen.address == "127.0.0.1:8151"
    assert got.observability.liveness_probe.url_path == "/liveness"
    assert got.observability.readiness_probe.url_path == "/readiness"
    assert got.observability.prometheus.url_path == "/metrics"
    assert got.observability.logging.level == "info"


def test_secret_of_the_api(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    file = f"{tmp_path}/kas.yaml"
    text = "api:\n  listen:\n    authentication_secret_file: secret\n"
    secret.write_bytes(base64.b64encode(bytes(32)))
    api = read_configuration(text, file).api
    assert api is not None
    assert api.listen.issuer == ""
    assert api.listen.listen_grace_period == 5.0
    secret.write_bytes(base64.b64encode(bytes(31)))
    (problem,) = problems(text, file)
    assert problem.startswith(f"{file}:3:33: api.listen.authentication_secret_file: ")
    assert "has 31 bytes when decoded, but needs 32" in problem
    (problem,) = problems("api: {listen: {}}", file)
    assert "the key 'authentication_secret_file' is missing" in problem


def test_the_example_is_the_defaults() -> None:
    got = read_configuration_file(EXAMPLE)
    assert "kubernetes_api" in got.agent.modules
    agent = attrs.evolve(got.agent, modules={})
    assert attrs.evolve(got, agent=agent) == KasConfiguration()


def test_the_example_has_every_key() -> None:
    text = EXAMPLE.read_text()
    for key in keys(KasConfiguration):
        assert f"{key.path.rsplit('.', 1)[-1]}:" in text, key.path


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("agent", "redis_conn_info_ttl"),
        ("agent", "redis_conn_info_gc"),
        ("agent", "receptive_agent"),
        ("agent.listen", "max_connection_age"),
        ("observability.logging", "grpc_level"),
        ("redis", "pool_size"),
        ("", "workspaces"),
        ("agent", "remote_development"),
        ("observability", "google_profiler"),
    ],
)
@pytest.mark.parametrize("content", ["1", "{a_secret_file: /none/x, unknown: 1}"])
def test_keys_of_others(path: str, key: str, content: str) -> None:
    """GitLab's files are taken; what changes nothing is said, and not what is in it."""
    parents = path.split(".") if path else []
    text = "".join(f"{parent}: {{" for parent in parents)
    text += f"{key}: {content}" + "}" * len(parents)
    remarks: list[str] = []
    found = problems(text, remark=remarks.append)
    assert not [one for one in found if key in one]
    (remark,) = remarks
    assert f"{key!r} is a key of GitLab's kas that has no effect here" in remark
    assert remark.startswith("kas.yaml:1:")


def test_slips_beside_them_are_found() -> None:
    (problem,) = problems("redis:\n  sentinal: {}\nautoflow:\n  address: x\n")
    assert "did you mean 'sentinel'?" in problem


def test_half_of_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "a.crt").write_text("x")
    text = "agent:\n  listen:\n    certificate_file: a.crt\n"
    assert problems(text, f"{tmp_path}/kas.yaml") == [
        f"{tmp_path}/kas.yaml:3:5: agent.listen.certificate_file: "
        "'key_file' is missing; TLS needs both"
    ]


def test_files_have_to_be_there(tmp_path: Path) -> None:
    text = "agent: {listen: {certificate_file: a.crt, key_file: a.key}}"
    found = problems(text, f"{tmp_path}/kas.yaml")
    assert len(found) == 2
    assert f"{tmp_path}/a.crt does not exist; correct the path" in found[0]


@pytest.mark.parametrize(
    ("section", "place", "says"),
    [
        (
            "agent: {listen: {client_ca_certificate_file: bad}}",
            "1:46: agent.listen.client_ca_certificate_file",
            "no CA certificate",
        ),
        (
            "private_api: {listen: {authentication_secret_file: secret, "
            "ca_certificate_file: bad}}",
            "1:81: private_api.listen.ca_certificate_file",
            "no CA certificate",
        ),
        (
            "redis: {server: {address: r}, tls: {ca_certificate_file: bad}}",
            "1:58: redis.tls.ca_certificate_file",
            "no CA certificate",
        ),
        (
            "redis: {server: {address: r}, tls: {certificate_file: a.crt, "
            "key_file: bad}}",
            "1:62: redis.tls.key_file",
            "no private key",
        ),
        (
            "agent: {listen: {certificate_file: bad, key_file: a.key}}",
            "1:18: agent.listen.certificate_file",
            "no certificate",
        ),
        (
            "agent: {listen: {certificate_file: a.crt, key_file: other.key}}",
            "1:43: agent.listen.key_file",
            "does not belong to the certificate",
        ),
        (
            "redis: {server: {address: r}, password_file: empty}",
            "1:46: redis.password_file",
            "is empty",
        ),
        (
            "redis: {server: {address: r}, password_file: binary}",
            "1:46: redis.password_file",
            "is not text",
        ),
        (
            "redis: {sentinel: {master_name: m, addresses: [a], "
            "sentinel_password_file: empty}}",
            "1:76: redis.sentinel.sentinel_password_file",
            "is empty",
        ),
    ],
)
def test_what_is_in_files(section: str, place: str, says: str, tmp_path: Path) -> None:
    """A file that is there and cannot be used is named by its line, too."""
    certificates.server_identity().write(tmp_path, "a")
    (tmp_path / "other.key").write_bytes(certificates.client_identity().key_pem())
    (tmp_path / "secret").write_bytes(base64.b64encode(bytes(32)))
    (tmp_path / "bad").write_text("nonsense")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    found = problems(section, f"{tmp_path}/kas.yaml")[0]
    assert found.startswith(f"{tmp_path}/kas.yaml:{place}: "), found
    assert says in found


def test_agents_certificates_go_with_our_own(tmp_path: Path) -> None:
    files = pki.DevelopmentPki(
        StateDirectory.open(tmp_path / "state"), "h", lambda: datetime.now(UTC)
    ).ensure()
    assert files.ca_file is not None
    files.ca_file.rename(tmp_path / "ca.crt")
    files.certificate_file.rename(tmp_path / "a.crt")
    files.key_file.rename(tmp_path / "a.key")
    text = "client_ca_certificate_file: ca.crt, development_certificate: true"
    got = read_configuration(f"agent: {{listen: {{{text}}}}}", f"{tmp_path}/kas.yaml")
    assert got.agent.listen.client_ca_certificate_file == tmp_path / "ca.crt"
    text = "certificate_file: a.crt, key_file: a.key, development_certificate: true"
    (problem,) = problems(f"agent: {{listen: {{{text}}}}}", f"{tmp_path}/kas.yaml")
    assert "keep one of the two" in problem


def test_going_without_tls_has_to_be_said() -> None:
    text = "agent: {listen: {address: '127.0.0.1:9150'}}"
    assert read_configuration(text, "kas.yaml").agent.listen.own_certificate
    text = "agent: {listen: {development_certificate: false}}"
    assert not read_configuration(text, "kas.yaml").agent.listen.tls
    assert not read_configuration("", "kas.yaml").observability.listen.tls


def test_example_has_every_key_of_the_proxy() -> None:
    from modules.kubernetes_api.config import KubernetesApiConfiguration

    section = read_configuration_file(EXAMPLE).agent.modules["kubernetes_api"]
    assert section is not None
    assert section.read(KubernetesApiConfiguration) == KubernetesApiConfiguration()
    assert set(section.keys()) == {
        attribute.name for attribute in attrs.fields(KubernetesApiConfiguration)
    }


def test_values_are_checked() -> None:
    found = problems(
        "agent: {listen: {connections_per_token_per_minute: 0}}\n"
        "observability:\n"
        "  liveness_probe: {url_path: alive}\n"
        "  logging: {level: loud}\n"
    )
    assert "must be more than 0" in found[0]
    assert "must begin with /" in found[1]
    assert "debug, info, warn, error" in found[2]


def test_sections_of_modules_are_kept() -> None:
    got = read_configuration("modules:\n  echo:\n    greeting: hi\n", "kas.yaml")
    assert got.modules["echo"].keys() == ("greeting",)
    assert got.modules["echo"].path == "modules.echo"


EXPORT = "observability: {audit: {file: a, exports: [{%s}]}}"
WEBHOOK = "name: a, format: webhook, url: 'https://a.example', secret_file: secret"


@pytest.mark.parametrize(
    ("export", "key", "says"),
    [
        (WEBHOOK.replace("name: a", "name: A/b"), "name", "use 1 to 32 characters"),
        (WEBHOOK.replace("https", "http"), "url", "use https"),
        (WEBHOOK.replace("//a", "//u:p@a"), "url", "must not contain a user name"),
        ("name: a, format: webhook, url: 'https://a'", "", "is missing"),
        (WEBHOOK.replace(": secret", ": bad"), "secret_file", "not base64"),
        (WEBHOOK.replace(": secret", ": short"), "secret_file", "has 5 bytes"),
        (
            f"{WEBHOOK}, certificate_file: secret, key_file: secret",
            "certificate_file",
            "only with syslog",
        ),
        (f"{WEBHOOK}, certificate_file: secret", "certificate_file", "belong together"),
        ("name: a, format: syslog, url: 'https://a'", "url", "write tls://HOST"),
        ("name: a, format: syslog, url: 'tls://a/b'", "url", "write tls://HOST"),
        ("name: a, format: syslog, url: 'tls://a:x'", "url", "write tls://HOST"),
        (
            "name: a, format: syslog, url: 'tls://a', secret_file: secret",
            "secret_file",
            "no effect",
        ),
    ],
)
def test_exports_of_the_audit_log(
    tmp_path: Path, export: str, key: str, says: str
) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef")
    (tmp_path / "bad").write_text("whsec_!!!!!!!!!!!!!!!!")
    (tmp_path / "short").write_text("short")
    (problem,) = problems(EXPORT % export, f"{tmp_path}/kas.yaml")
    path = f"observability.audit.exports[0].{key}".rstrip(".")
    assert f"{path}: " in problem
    assert says in problem
    assert not problems(EXPORT % WEBHOOK, f"{tmp_path}/kas.yaml")


def test_names_of_exports_are_unique(tmp_path: Path) -> None:
    """Each has a place in the log under its name."""
    (tmp_path / "secret").write_text("0123456789abcdef")
    twice = f"{WEBHOOK}}}, {{{WEBHOOK}"
    (problem,) = problems(EXPORT % twice, f"{tmp_path}/kas.yaml")
    assert "two exports have the same name" in problem
    many = "}, {".join(WEBHOOK.replace("name: a", f"name: a{n}") for n in range(9))
    (problem,) = problems(EXPORT % many, f"{tmp_path}/kas.yaml")
    assert "at most 8 exports" in problem


def test_syslog_without_further_settings() -> None:
    export = "name: a, format: syslog, url: 'tls://siem.example.com'"
    assert not problems(EXPORT % export)
    export = "name: a, format: otlp, url: 'https://siem.example.com'"
    assert not problems(EXPORT % export)


@pytest.mark.parametrize("enforced", ["[]", "[sessions, changes, secrets]"])
def test_enforced_events(enforced: str) -> None:
    text = "observability: {audit: {file: a, enforced: %s}}"
    assert not problems(text % enforced)
    (problem,) = problems(text % "[all]")
    assert "expected one of: sessions, changes, secrets" in problem


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        ("{}", "write days, size or both"),
        ("{days: 0}", "days"),
        ("{size: 0}", "size"),
        ("{days: 30}", ""),
        ("{size: 50GiB}", ""),
    ],
)
def test_limits_of_the_audit_log(keep: str, says: str) -> None:
    found = problems(f"observability: {{audit: {{file: a, keep: {keep}}}}}")
    assert len(found) == bool(says)
    assert says in "".join(found)
