"""Where other kas reach this one: what is said, what is found, what is wrong."""

from __future__ import annotations

import base64
import builtins
import ipaddress
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from kas.config.own_address import (
    OwnAddress,
    PeerURL,
    interface_addresses,
    own_address,
    own_names,
    parse_peer_url,
)
from kas.config.schema import PrivateApiListen
from tunnel.config import Listen
from tunnel.errors import ConfigurationError

ADDRESSES = ("127.0.0.1", "10.1.2.3", "192.168.0.7", "fd00::7")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tls://kas-1:9000", PeerURL("tls", "kas-1", 9000)),
        (" tcp://10.0.0.1 ", PeerURL("tcp", "10.0.0.1", 8155)),
        ("grpcs://[fd00::1]:1/", PeerURL("tls", "fd00::1", 1)),
        ("grpc://kas", PeerURL("tcp", "kas", 8155)),
        ("unix:///run/kas.sock", PeerURL("unix", "", 0, "/run/kas.sock")),
        ("unix:/run/kas.sock", PeerURL("unix", "", 0, "/run/kas.sock")),
        ("unix:///run/a#b?c d", PeerURL("unix", "", 0, "/run/a#b?c d")),
    ],
)
def test_peer_urls(text: str, expected: PeerURL) -> None:
    assert parse_peer_url(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("https://kas", "not an address of a kas"),
        ("kas:8155", "not an address of a kas"),
        ("", "not an address of a kas"),
        ("unix://run/kas.sock", "write the complete path"),
        ("unix:kas.sock", "write the complete path"),
        ("tls://kas/path", "only scheme, host and port"),
        ("tls://kas?x=1", "only scheme, host and port"),
        ("tls://user:secret@kas", "only scheme, host and port"),
        ("tls://:8155", "no host"),
        ("tls://kas:99999", "out of range"),
    ],
)
def test_wrong_peer_urls(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_peer_url(text)


def own(
    environ: Mapping[str, str] | None = None,
    addresses: Iterable[str] = ADDRESSES,
    port: int = 0,
    **listen: Any,
) -> OwnAddress:
    """What comes of these settings."""
    with tempfile.NamedTemporaryFile() as secret:
        secret.write(base64.b64encode(b"s" * 32))
        secret.flush()
        settings = PrivateApiListen(
            authentication_secret_file=Path(secret.name), **listen
        )
    return own_address(settings, environ or {}, lambda: addresses, port)


def test_from_what_is_listened_on() -> None:
    assert own(address="10.0.0.1:8155") == OwnAddress("tcp://10.0.0.1:8155")
    tls = own(address="10.0.0.1:8155", development_certificate=True)
    assert tls.url == "tls://10.0.0.1:8155"
    assert own(address="[fd00::1]:1").url == "tcp://[fd00::1]:1"
    assert own(address="10.0.0.1:0", port=4711).url == "tcp://10.0.0.1:4711"
    unix = own(address="/run/kas.sock", network="unix")
    assert unix.url == "unix:///run/kas.sock"


def test_said_outright() -> None:
    environ = {
        "OWN_PRIVATE_API_URL": "grpcs://kas-1:8155",
        "OWN_PRIVATE_API_HOST": "kas.example",
    }
    assert own(
        environ, address="0.0.0.0:1", development_certificate=True
    ) == OwnAddress("grpcs://kas-1:8155", "kas.example")


def test_by_network() -> None:
    environ = {"OWN_PRIVATE_API_CIDR": "10.0.0.0/8, 172.16.0.0/12"}
    assert own(environ, address="0.0.0.0:8155").url == "tcp://10.1.2.3:8155"
    environ |= {"OWN_PRIVATE_API_SCHEME": "grpcs", "OWN_PRIVATE_API_PORT": "99"}
    found = own(environ, address="0.0.0.0:8155", development_certificate=True)
    assert found.url == "tls://10.1.2.3:99"
    six = {"OWN_PRIVATE_API_CIDR": "fd00::/8"}
    assert own(six, address="[::]:8155").url == "tcp://[fd00::7]:8155"


@pytest.mark.parametrize("address", ["0.0.0.0:8155", ":8155", "[::]:8155"])
def test_everywhere_is_nowhere(address: str) -> None:
    with pytest.raises(ConfigurationError, match="set OWN_PRIVATE_API_URL"):
        own(address=address)


def test_an_endpoint_says_nothing() -> None:
    with pytest.raises(ConfigurationError, match="set OWN_PRIVATE_API_URL"):
        own(endpoint="systemd:domain=INET:index=0")


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"URL": "tls://kas", "CIDR": "10.0.0.0/8"}, "are mutually exclusive"),
        ({"URL": "http://kas"}, "not an address of a kas"),
        ({"CIDR": "ten"}, "OWN_PRIVATE_API_CIDR"),
        (
            {"CIDR": "11.0.0.0/8"},
            "exactly one address of this machine, but contains none",
        ),
        ({"CIDR": "10.0.0.0/8,192.168.0.0/16"}, "but contains 10.1.2.3, 192.168.0.7;"),
        ({"CIDR": "10.0.0.0/8", "SCHEME": "https"}, r"write tls \(grpcs\) or tcp"),
        ({"CIDR": "10.0.0.0/8", "SCHEME": "unix"}, r"write tls \(grpcs\) or tcp"),
        ({"CIDR": "10.0.0.0/8", "SCHEME": "grpcs"}, "the listener does not use TLS"),
        ({"URL": "tls://kas"}, "the listener does not use TLS"),
        ({"URL": "grpcs://kas"}, "the listener does not use TLS"),
        ({"CIDR": "10.0.0.0/8", "PORT": "0"}, "is not a port"),
        ({"CIDR": "10.0.0.0/8", "PORT": "65536"}, "is not a port"),
        ({"CIDR": "10.0.0.0/8", "PORT": "http"}, "is not a port"),
    ],
)
def test_contradictions(environ: dict[str, str], says: str) -> None:
    named = {f"OWN_PRIVATE_API_{name}": value for name, value in environ.items()}
    with pytest.raises(ConfigurationError, match=says):
        own(named, address="0.0.0.0:8155")


def test_without_tls_where_the_listener_has_it() -> None:
    for name, value in (("URL", "tcp://kas"), ("URL", "grpc://kas:1")):
        with pytest.raises(ConfigurationError, match="uses TLS; write tls://"):
            own(
                {f"OWN_PRIVATE_API_{name}": value},
                address="0.0.0.0:8155",
                development_certificate=True,
            )


def test_an_endpoint_may_be_anything() -> None:
    environ = {"OWN_PRIVATE_API_URL": "tls://kas"}
    assert own(environ, endpoint="ssl:8155").url == "tls://kas"


def test_this_machine() -> None:
    found = interface_addresses()
    assert "127.0.0.1" in found
    assert all(ipaddress.ip_address(one) for one in found)


def test_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def missing(path: Any, *arguments: Any, **named: Any) -> Any:
        if path == "/proc/net/if_inet6":
            raise FileNotFoundError
        return real(path, *arguments, **named)

    monkeypatch.setattr(builtins, "open", missing)
    assert all("." in one for one in interface_addresses())


def test_an_interface_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def interfaces() -> list[tuple[int, str]]:
        return [(1, "lo"), (99, "no-such-one")]

    monkeypatch.setattr("socket.if_nameindex", interfaces)
    assert interface_addresses()[0] == "127.0.0.1"


def test_they_are_values() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        OwnAddress("").url = "x"  # type: ignore[misc]


def test_names_for_the_certificate() -> None:
    """What is said, and what other settings tell."""
    listeners = [
        Listen(
            address="192.0.2.2:8150",
            development_certificate=True,
            development_certificate_names=("kas.example.org",),
        ),
        Listen(address=":8154", development_certificate=True),
        Listen(address="192.0.2.9:8151"),
    ]
    names = ("kas.example.org", "192.0.2.2")
    assert own_names(listeners, None) == names
    own = OwnAddress("tls://[fd00::1]:8155", "all-kas.example.org")
    assert own_names(listeners, own) == (*names, "fd00::1", "all-kas.example.org")
    assert own_names([], OwnAddress("unix:///run/kas.sock")) == ()
