"""Where to listen: what that comes to, and what is no such place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tunnel.config.schemas import problems
from tests.tunnel.transport import certificates
from tunnel.config import Listen, read
from tunnel.errors import ConfigurationError


class TestListen:
    @pytest.mark.parametrize(
        ("text", "endpoint"),
        [
            ("address: 127.0.0.1:8150", "tcp:8150:interface=127.0.0.1:backlog=4096"),
            ("address: '[::1]:8150'", r"tcp6:8150:interface=\:\:1:backlog=4096"),
            ("address: localhost:1", "tcp:1:interface=localhost:backlog=4096"),
            ("{network: tcp4, address: ':80'}", "tcp:80:backlog=4096"),
            ("{network: tcp6, address: ':80'}", r"tcp6:80:interface=\:\::backlog=4096"),
            ("{network: unix, address: '/run/a:b'}", r"unix:/run/a\:b:mode=660"),
            ("endpoint: tcp:8150", "tcp:8150"),
            ("endpoint: systemd:domain=INET:name=x", "systemd:domain=INET:name=x"),
        ],
    )
    def test_endpoint_string(self, text: str, endpoint: str) -> None:
        assert read(text, "f.yaml", Listen).endpoint_string() == endpoint

    def test_no_host_is_every_address(self) -> None:
        got = Listen(address=":80").endpoint_string()
        assert got in ("tcp:80:backlog=4096", r"tcp6:80:interface=\:\::backlog=4096")

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("address: nonsense", "is not 'host:port'"),
            ("address: 'a:99999'", "99999 is not a port"),
            (
                "{network: tcp6, address: '1.2.3.4:1'}",
                "not an address of the network tcp6",
            ),
            (
                "{network: tcp4, address: '[::1]:1'}",
                "not an address of the network tcp4",
            ),
            (
                "{network: tcp6, address: 'name:1'}",
                "with network tcp6, write an address",
            ),
            ("address: '[x]:1'", "is not an IPv6 address"),
            ("network: unix", "write the path of the socket"),
            ("network: udp", "expected one of: tcp, tcp4, tcp6, unix"),
            ("endpoint: nonsense", "is not an endpoint"),
            ("endpoint: 'tcp:x'", "is not an endpoint that Twisted"),
            ("{endpoint: 'tcp:1', address: 'a:1'}", "are mutually exclusive"),
            ("{endpoint: 'tcp:1', network: tcp4}", "are mutually exclusive"),
            (
                "{address: 'a:1', development_certificate_names: [a]}",
                "kas' own certificate is not used here",
            ),
            (
                "{address: 'a:1', development_certificate: true, "
                "development_certificate_names: ['tls://a:1']}",
                "is neither a host name nor an address",
            ),
            (
                "{address: 'a:1', development_certificate: true, "
                f"development_certificate_names: {[str(n) for n in range(21)]}}}",
                "at most 20 names",
            ),
        ],
    )
    def test_wrong(self, text: str, says: str) -> None:
        (problem,) = problems(text, Listen)
        assert says in problem

    def test_half_of_tls(self, tmp_path: Path) -> None:
        (tmp_path / "x.pem").write_text("x")
        for one, other in (
            ("certificate_file", "key_file"),
            ("key_file", "certificate_file"),
        ):
            with pytest.raises(ConfigurationError) as caught:
                read(f"address: a:1\n{one}: x.pem", f"{tmp_path}/f.yaml", Listen)
            assert f"f.yaml:2:1: {one}: '{other}' is missing" in str(caught.value)

    @pytest.mark.parametrize(
        ("address", "host"),
        [
            ("192.0.2.2:1", "192.0.2.2"),
            ("'[fd00::1]:1'", "fd00::1"),
            ("kas:1", "kas"),
            ("':1'", ""),
            ("0.0.0.0:1", ""),
            ("'[::]:1'", ""),
        ],
    )
    def test_host(self, address: str, host: str) -> None:
        assert read(f"address: {address}", "f.yaml", Listen).host == host

    def test_client_certificates_need_tls(self, tmp_path: Path) -> None:
        (tmp_path / "x.pem").write_text(certificates.authority().pem)
        text = "address: a:1\nclient_ca_certificate_file: x.pem"
        with pytest.raises(ConfigurationError) as caught:
            read(text, f"{tmp_path}/f.yaml", Listen)
        assert "client certificates need TLS" in str(caught.value)

    def test_several_problems_of_one_section(self, tmp_path: Path) -> None:
        (tmp_path / "x.pem").write_text("x")
        text = "address: nonsense\nkey_file: x.pem"
        with pytest.raises(ConfigurationError) as caught:
            read(text, f"{tmp_path}/f.yaml", Listen)
        assert len(caught.value.problems) == 2
