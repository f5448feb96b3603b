"""The development CA: made once, and renewed in time."""

from __future__ import annotations

import os
import re
import socket
import ssl
import stat
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kas.state.directory import StateDirectory
from kas.state.pki import (
    CA_LIFE,
    CA_NOTICE,
    MAX_NAMES,
    SERVER_LIFE,
    DevelopmentPki,
    ServerFiles,
    ensure,
    is_for,
    names_of,
    renewal_problem,
    signed_by,
)
from tunnel.errors import ConfigurationError

NAMES = ("ca.crt", "ca.key", "server.crt", "server.key")

#: In the order in which the first start writes them.
WRITTEN = ("ca.key", "ca.crt", "server.key", "server.crt")


class World:
    """A state directory and a time of day."""

    def __init__(self, path: Path) -> None:
        self.state = StateDirectory.open(path)
        self.now = datetime.now(UTC).replace(microsecond=0)

    def ensure(
        self, hostname: str = "kas.example.org", names: Sequence[str] = ()
    ) -> ServerFiles:
        return DevelopmentPki(self.state, hostname, lambda: self.now, names).ensure()

    def content(self) -> dict[str, bytes | None]:
        return {name: self.state.read(name) for name in NAMES}

    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.state.read("server.crt") or b"")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state")


def test_made_on_the_first_start(world: World) -> None:
    files = world.ensure()
    modes = {n: stat.S_IMODE(world.state.file(n).stat().st_mode) for n in NAMES}
    assert modes == {
        "ca.crt": 0o644,
        "ca.key": 0o600,
        "server.crt": 0o644,
        "server.key": 0o600,
    }
    names = world.certificate().extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == [
        "localhost",
        "kas.example.org",
    ]
    addresses = names.value.get_values_for_type(x509.IPAddress)
    assert [str(address) for address in addresses] == ["127.0.0.1", "::1"]
    assert files.ca_file == world.state.file("ca.crt")
    assert files.expires_at == world.now + SERVER_LIFE
    assert files.pin.startswith("sha256//")


def test_a_host_name_that_cannot_be_one(world: World) -> None:
    world.ensure("under_score and space")
    world.certificate()


def test_the_second_start_changes_nothing(world: World) -> None:
    first = world.ensure()
    before = world.content()
    world.now += timedelta(days=59)
    assert world.ensure() == first
    assert world.content() == before


def test_by_seconds(world: World) -> None:
    files = ensure(world.state, world.now.timestamp, "kas.example.org")
    assert files == world.ensure()


def test_renewed_at_two_thirds_with_the_same_key(world: World) -> None:
    first = world.ensure()
    before = world.content()
    assert first.renew_at is not None
    world.now = first.renew_at
    second = world.ensure()
    after = world.content()
    assert second.expires_at == world.now + SERVER_LIFE
    assert second.pin == first.pin
    assert [n for n in NAMES if before[n] != after[n]] == ["server.crt"]


def test_renewed_even_when_it_has_expired(world: World) -> None:
    world.ensure()
    world.now += timedelta(days=400)
    assert world.ensure().expires_at == world.now + SERVER_LIFE


def test_foreign_files_are_left_alone(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    other.ensure()
    world.ensure()
    for name in ("server.crt", "server.key"):
        world.state.write(name, other.state.read(name) or b"")
    before = world.content()
    world.now += timedelta(days=400)
    files = world.ensure()
    assert world.content() == before
    assert (files.ca_file, files.renew_at) == (None, None)


def test_a_foreign_certificate_alone_needs_no_ca(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    other.ensure()
    for name in ("server.crt", "server.key"):
        world.state.write(name, other.state.read(name) or b"")
    world.ensure()
    assert world.state.read("ca.crt") is None


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        (("server.key",), "server.key is missing although server.crt exists"),
        (("ca.key", "server.crt"), "ca.key is missing although ca.crt exists"),
    ],
)
def test_what_belongs_together(world: World, gone: list[str], says: str) -> None:
    world.ensure()
    for name in gone:
        os.unlink(world.state.file(name))
    with pytest.raises(ConfigurationError, match=says):
        world.ensure()


def test_without_the_key_of_the_ca_it_is_used_and_not_renewed(world: World) -> None:
    first = world.ensure()
    os.unlink(world.state.file("ca.key"))
    world.now += timedelta(days=80)
    found = world.ensure()
    assert first.problem is None
    assert "ca.key is missing" in (found.problem or "")
    assert attrs.evolve(found, problem=None) == first
    assert follow_advice(world, found.problem or "").renew_at is not None


def test_a_ca_that_ends(world: World) -> None:
    """kas names the end of the CA 90 days before, and what to do, and after it."""
    first = world.ensure()
    begin = world.now
    world.now = begin + CA_LIFE - CA_NOTICE - timedelta(days=1)
    assert world.ensure().problem is None
    world.now += timedelta(days=2)
    problem = world.ensure().problem or ""
    assert f"ca.crt expires on {begin + CA_LIFE:%Y-%m-%d}" in problem
    assert (
        "remove ca.crt, ca.key and server.crt so that kas creates new ones" in problem
    )
    assert first.ca_file is not None
    world.now = begin + CA_LIFE + timedelta(days=1)
    assert "ca.crt expired on" in (renewal_problem(world.state, world.now) or "")
    with pytest.raises(ConfigurationError, match=r"ca\.crt has expired; remove"):
        world.ensure()


def follow_advice(world: World, said: str) -> ServerFiles:
    """Remove what an error says, and nothing else."""
    (removed,) = re.findall(r"or remove (.*?) so that kas creates new ones", said)
    for name in re.findall(r"\w+\.(?:crt|key)", removed):
        world.state.file(name).unlink(missing_ok=True)
    files = world.ensure()
    assert files.problem is None
    assert files.ca_file is not None
    assert files.expires_at - world.now == SERVER_LIFE
    return files


@pytest.mark.parametrize("data", [b"", b"nonsense"])
def test_damaged_keys(world: World, data: bytes) -> None:
    """What the error advises leads to a certificate that is renewed again."""
    world.ensure()
    world.state.write("ca.key", data)
    world.now += timedelta(days=80)
    with pytest.raises(ConfigurationError, match=r"ca\.key is not an EC key") as caught:
        world.ensure()
    follow_advice(world, str(caught.value))
    world.state.write("server.key", data)
    world.now += timedelta(days=80)
    with pytest.raises(ConfigurationError, match=r"server\.key is not an") as caught:
        world.ensure()
    said = str(caught.value).replace("remove it and", "remove server.key and")
    follow_advice(world, said)


def test_a_lost_certificate_is_issued_again(world: World) -> None:
    first = world.ensure()
    os.unlink(world.state.file("server.crt"))
    assert world.ensure().pin == first.pin


@pytest.mark.parametrize("written", range(1, len(WRITTEN)))
def test_a_start_that_was_cut_short(world: World, written: int) -> None:
    """The next one keeps what was written, and makes the rest to fit."""
    world.ensure()
    for name in WRITTEN[written:]:
        os.unlink(world.state.file(name))
    before = world.content()
    files = world.ensure()
    after = world.content()
    kept = WRITTEN[:written]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    authority = x509.load_pem_x509_certificate(after["ca.crt"] or b"")
    assert signed_by(world.certificate(), authority)
    for certificate, name in (
        (authority, "ca.key"),
        (world.certificate(), "server.key"),
    ):
        key = serialization.load_pem_private_key(after[name] or b"", None)
        assert key.public_key() == certificate.public_key()
    assert files.ca_file == world.state.file("ca.crt")
    assert world.ensure() == files


@pytest.mark.parametrize("name", ["ca.crt", "server.crt"])
def test_not_a_certificate(world: World, name: str) -> None:
    world.ensure()
    world.state.write(name, b"nonsense")
    with pytest.raises(ConfigurationError, match=f"{name} is not a PEM"):
        world.ensure()


def test_a_foreign_ca_key(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    other.ensure()
    world.ensure()
    world.state.write("ca.key", other.state.read("ca.key") or b"")
    world.now += timedelta(days=80)
    with pytest.raises(ConfigurationError, match="does not belong to") as caught:
        world.ensure()
    follow_advice(world, str(caught.value))


def test_an_expired_authority(world: World) -> None:
    world.ensure()
    world.now += timedelta(days=3700)
    with pytest.raises(ConfigurationError, match=r"ca\.crt has expired") as caught:
        world.ensure()
    follow_advice(world, str(caught.value).replace("; remove", "; or remove"))


def test_no_certificate_outlives_the_ca(world: World) -> None:
    world.ensure()
    world.now += timedelta(days=3640)
    authority = x509.load_pem_x509_certificate(world.state.read("ca.crt") or b"")
    assert world.ensure().expires_at == authority.not_valid_after_utc
    world.now += timedelta(days=20)
    with pytest.raises(ConfigurationError, match="has expired"):
        world.ensure()


def test_clients_accept_it(world: World) -> None:
    """A handshake, with the strictest checks that OpenSSL has."""
    files = world.ensure()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate_file, files.key_file)
    client = ssl.create_default_context(cafile=files.ca_file)
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    for name in ("localhost", "127.0.0.1", "::1", "kas.example.org"):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(10)
            theirs.settimeout(10)

            def accept(theirs: socket.socket = theirs) -> None:
                server.wrap_socket(theirs, server_side=True).close()

            thread = threading.Thread(target=accept)
            thread.start()
            with client.wrap_socket(ours, server_hostname=name) as wrapped:
                assert wrapped.getpeercert()
            thread.join(10)


def test_made_again_for_new_names(world: World) -> None:
    """With the same CA and key: what agents trust, and pins, stay right."""
    world.ensure()
    before = world.content()
    world.ensure(names=["192.0.2.2", "KAS-1.example.org"])
    assert {"192.0.2.2", "kas-1.example.org"} < set(names_of(world.certificate()))
    after = world.content()
    for name in NAMES:
        assert (after[name] == before[name]) is (name != "server.crt")
    # kasctl knows no names, another kas that shares the directory has others.
    for names in ((), ("192.0.2.2",)):
        world.ensure("another-host", names)
        assert world.content() == after
    world.ensure(names=["2001:DB8:0::1"])
    found = set(names_of(world.certificate()))
    assert {"192.0.2.2", "2001:db8::1", "localhost", "kas.example.org"} < found
    # What is asked for no longer goes at the renewal.
    world.now += SERVER_LIFE * 2 / 3
    world.ensure(names=["192.0.2.3"])
    assert set(names_of(world.certificate())) == {
        *("localhost", "127.0.0.1", "::1"),
        *("kas.example.org", "192.0.2.3"),
    }


def test_names_have_an_end(world: World) -> None:
    names = [f"{number}.example.org" for number in range(2 * MAX_NAMES)]
    world.ensure(names=names)
    before = world.content()
    assert len(names_of(world.certificate())) == MAX_NAMES
    world.ensure(names=names)
    assert world.content() == before


def test_a_certificate_of_the_operator_is_left_alone(world: World) -> None:
    world.ensure()
    world.state.file("ca.crt").unlink()
    before = world.content()
    world.ensure(names=["192.0.2.2"])
    assert world.content() == before


def test_whom_it_is_for(world: World) -> None:
    world.ensure(names=["*.example.net"])
    certificate = world.certificate()
    for host in ("localhost", "LOCALHOST", "::1", "0:0::1", "a.example.net"):
        assert is_for(certificate, host)
    for host in ("example.net", "a.b.example.net", "192.0.2.2", "", "net"):
        assert not is_for(certificate, host)
