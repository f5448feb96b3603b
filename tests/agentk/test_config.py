"""What agentk is told, and what it answers to nonsense."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher

from agentk.config import (
    MAX_TOKEN,
    read_configuration,
    read_options,
    read_token,
)
from kas.state import pki
from kas.state.directory import StateDirectory
from tunnel.errors import ConfigurationError

TLS = {"kas-address": "tls://kas.example:8150"}


def problems(flags: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_options(flags, {})
    return list(caught.value.problems)


def authority_file(folder: Path) -> str:
    """A CA."""
    files = pki.DevelopmentPki(
        StateDirectory.open(folder / "state"), "h", lambda: datetime.now(UTC)
    ).ensure()
    return str(files.ca_file)


def test_defaults() -> None:
    got = read_options(TLS, {})
    (kas,) = got.kas
    assert (kas.scheme, kas.port) == ("tls", 8150)
    assert got.observability.endpoint_string().startswith("tcp")
    assert got.observability.address == ":8080"
    assert (got.ca_cert_file, got.namespace) == (None, "")


def test_everything(tmp_path: Path) -> None:
    authority = authority_file(tmp_path)
    got = read_options(
        {
            "kas-address": "wss://kas.example/agents",
            "ca-cert-file": authority,
            "kas-header": ["X-A: b: c", " Y :z"],
            "kas-insecure-skip-tls-verify": 1,
            "kas-tls-server-name": "kas",
            "observability-listen-network": "tcp4",
            "observability-listen-address": "127.0.0.1:0",
        },
        {"POD_NAMESPACE": "agents", "POD_NAME": "agentk-0"},
    )
    assert got.kas_header == (("X-A", "b: c"), ("Y", "z"))
    assert got.kas_insecure_skip_tls_verify is True
    assert (
        got.observability.endpoint_string() == "tcp:0:interface=127.0.0.1:backlog=4096"
    )
    assert got.ca_cert_file == Path(authority)
    assert (got.namespace, got.pod_name) == ("agents", "agentk-0")


def test_namespace() -> None:
    got = read_options({**TLS, "namespace": "n"}, {"POD_NAMESPACE": "agents"})
    assert got.namespace == "n"


def test_all_problems_at_once(tmp_path: Path) -> None:
    found = problems(
        {
            "kas-address": "grpcs://kas.example",
            "ca-cert-file": f"{tmp_path}/gone",
            "observability-cert-file": f"{tmp_path}/gone",
            "kas-header": ["secret-without-colon", "A: b\r\nC: d"],
            "observability-listen-address": "nonsense",
        }
    )
    text = "\n".join(found)
    assert len(found) == 6
    assert "--kas-address: " in text
    assert "tls://kas.example:8150" in text
    assert "--ca-cert-file: " in text
    assert "--observability-cert-file: " in text
    assert "--observability-listen-address: 'nonsense' is not 'host:port'" in text


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("keys: keys", "2:3: policy.keys: has no effect without a policy"),
        ("{file: a, signatures: 2}", "policy.signatures: needs keys"),
        ("{file: a, keys: b, signatures: 0}", "policy.signatures: must be more than 0"),
    ],
)
def test_policy_settings(tmp_path: Path, section: str, problem: str) -> None:
    """A setting of the owner's policy that would have no effect is refused."""
    file = tmp_path / "agentk.yaml"
    file.write_text(f"policy:\n  {section}\n")
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(str(file))
    assert problem in str(caught.value)


def test_policy_files(tmp_path: Path) -> None:
    """The files of a policy, with its signatures beside it."""
    file = tmp_path / "agentk.yaml"
    file.write_text("policy: {file: a/policy.yaml, keys: keys, signatures: 2}\n")
    settings = read_configuration(str(file))[0].policy
    names = [str(one.relative_to(tmp_path)) for one in settings.files]
    assert names == ["a/policy.yaml", "a/policy.yaml.sig", "keys"]


def test_no_address() -> None:
    assert "--kas-address: is missing" in problems({})[0]


def test_several_addresses() -> None:
    addresses = ["tls://a.example", "wss://b.example/kas"]
    got = read_options({"kas-address": addresses, "kas-header": ["A: b"]}, {})
    assert [str(one) for one in got.kas] == [
        "tls://a.example:8150",
        "wss://b.example/kas",
    ]
    (found,) = problems({"kas-address": ["tls://a.example", "b.example"]})
    assert "b.example" in found


def test_an_unknown_network() -> None:
    (found,) = problems({**TLS, "observability-listen-network": "udp"})
    assert found == (
        "--observability-listen-network: expected one of: tcp, tcp4, tcp6, unix; "
        "got 'udp'"
    )


def test_half_of_tls_for_observability(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    (found,) = problems({**TLS, "observability-cert-file": f"{tmp_path}/x"})
    assert "TLS needs both" in found


def test_what_would_have_no_effect_is_said(tmp_path: Path) -> None:
    found = problems(
        {
            "kas-address": "tcp://kas.example",
            "kas-header": ["A: b"],
            "ca-cert-file": authority_file(tmp_path),
            "kas-tls-server-name": "x",
            "kas-insecure-skip-tls-verify": True,
        }
    )
    assert len(found) == 4
    (only,) = problems({**TLS, "kas-header": ["A: b"]})
    assert "does not support headers" in only


class TestToken:
    """From a file or from the environment, and never from both."""

    def test_from_the_environment(self) -> None:
        environ = {"AGENTK_TOKEN": "abc\n", "PATH": "x"}
        source = read_token(None, environ)
        assert source.current() == b"abc"
        assert environ == {"PATH": "x"}
        assert "abc" not in repr(source)

    def test_from_a_file_that_changes(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("one\n")
        source = read_token(str(file), {})
        assert source.current() == b"one"
        file.write_text("two")
        assert source.current() == b"two"
        file.write_text("")
        logged = EventLoggingObserver()
        globalLogPublisher.addObserver(logged)
        try:
            assert [source.current() for _ in range(3)] == [b"two"] * 3
        finally:
            globalLogPublisher.removeObserver(logged)
        assert len(logged) == 1
        file.write_text("three")
        assert source.current() == b"three"

    def test_both_or_none(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        with pytest.raises(ConfigurationError, match="are mutually exclusive"):
            read_token(str(file), {"AGENTK_TOKEN": "abc"})
        assert read_token(str(file), {"AGENTK_TOKEN": ""}).current() == b"one"
        with pytest.raises(ConfigurationError, match="kasctl agent add"):
            read_token(None, {})

    @pytest.mark.parametrize("text", ["", "a b", "a\nb", "é", "x" * (MAX_TOKEN + 1)])
    def test_not_a_token(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "token"
        file.write_text(text)
        with pytest.raises(ConfigurationError, match="one token") as caught:
            read_token(str(file), {})
        assert str(file) in str(caught.value)
        if text:
            with pytest.raises(ConfigurationError, match="one token"):
                read_token(None, {"AGENTK_TOKEN": text})

    def test_as_long_as_allowed(self) -> None:
        environ = {"AGENTK_TOKEN": "x" * MAX_TOKEN}
        assert len(read_token(None, environ).current()) == MAX_TOKEN
