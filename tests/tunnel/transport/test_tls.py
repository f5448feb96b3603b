"""Contexts: what is accepted, why a handshake failed, and files that change."""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives import serialization
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.session.harness import BufferPeer
from tests.tunnel.transport import certificates
from tests.tunnel.transport.tls_layer import (
    ClientTestCase,
    LayerTestCase,
    server_context,
)
from tunnel.errors import ConfigurationError
from tunnel.transport.tls import (
    CHECK_INTERVAL,
    CertificateFiles,
    ReloadingServerContext,
    certificate_pin,
    certificate_validity,
    client_context,
    identity_files,
)


def shake(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Run a handshake in memory; raises what either side raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
    done = set()
    for _ in range(6):
        for side in (theirs, ours):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    return ours, theirs


class FilesTestCase(SynchronousTestCase):
    """Has a directory with the files of a server."""

    def setUp(self) -> None:
        holder = TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.directory = Path(holder.name)
        self.cert, self.key = certificates.server_identity().write(
            self.directory, "server"
        )
        self.ca = certificates.authority().write(self.directory)
        self.clock = Clock()

    def server(self, **options: Any) -> ReloadingServerContext:
        return ReloadingServerContext(self.cert, self.key, clock=self.clock, **options)

    def client(self, **options: Any) -> ssl.SSLContext:
        return client_context(self.ca, **options)

    def assert_names(self, path: str, *words: str, **options: Any) -> None:
        """The first load fails with one line, about that file, with these words."""
        error = self.assertRaises(ConfigurationError, self.server, **options)
        self.assertEqual(len(error.problems), 1)
        self.assertTrue(error.problems[0].startswith(path + ": "), error.problems)
        for word in words:
            self.assertIn(word, error.problems[0])


class ServerContextTests(FilesTestCase):
    def test_defaults(self) -> None:
        """TLS 1.3, the tunnel's name, no tickets, no client certificate."""
        context = self.server()()
        self.assertEqual(context.num_tickets, 0)
        self.assertEqual(context.verify_mode, ssl.CERT_NONE)
        ours, theirs = shake(context, self.client())
        self.assertEqual(theirs.version(), "TLSv1.3")
        self.assertEqual(ours.selected_alpn_protocol(), "txkas/1")

    def test_old_version_is_refused(self) -> None:
        """A client of TLS 1.2 gets no connection by default, and one when allowed."""
        client = self.client(minimum_version=ssl.TLSVersion.TLSv1_2)
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        self.assertRaises(ssl.SSLError, shake, self.server()(), client)
        allowing = self.server(minimum_version=ssl.TLSVersion.TLSv1_2)()
        _, theirs = shake(allowing, client)
        self.assertEqual(theirs.version(), "TLSv1.2")
        self.assertRegex(theirs.cipher()[0], "^ECDHE.*(GCM|CHACHA)")  # type: ignore[index]

    def test_unknown_alpn_is_no_reason_to_refuse(self) -> None:
        """A client with other names in ALPN gets a connection without any."""
        ours, _ = shake(self.server()(), self.client(alpn=("h2",)))
        self.assertIsNone(ours.selected_alpn_protocol())
        ours, _ = shake(self.server()(), self.client(alpn=()))
        self.assertIsNone(ours.selected_alpn_protocol())

    def test_client_certificate(self) -> None:
        """With a CA, certificates are taken, demanded if told so, and verified."""
        mine = certificates.client_identity().write(self.directory, "client")
        required = self.server(client_ca_file=self.ca, require_client_cert=True)()
        client = self.client(identity=mine)
        ours, _ = shake(required, client)
        self.assertEqual(
            ours.getpeercert(True), certificates.client_identity().certificate_der
        )
        self.assertRaises(ssl.SSLError, shake, required, self.client())
        optional = self.server(client_ca_file=self.ca)()
        ours, _ = shake(optional, self.client())
        self.assertIsNone(ours.getpeercert(True))
        for stranger in (
            certificates.other_authority().issue("agent.example"),
            certificates.authority().issue("agent.example", expired=True),
        ):
            paths = stranger.write(self.directory, "stranger")
            client = self.client(identity=paths)
            for context in (required, optional):
                self.assertRaises(ssl.SSLCertVerificationError, shake, context, client)

    def test_missing_file(self) -> None:
        self.key = str(self.directory / "nowhere.key")
        self.assert_names(self.key, "No such file", "check the path")

    def test_not_pem(self) -> None:
        Path(self.cert).write_bytes(certificates.server_identity().certificate_der)
        self.assert_names(self.cert, "no certificate", "PEM")
        self.cert, self.key = certificates.server_identity().write(self.directory, "b")
        Path(self.key).write_text("hello")
        self.assert_names(self.key, "no private key")

    def test_broken_pem(self) -> None:
        Path(self.cert).write_text(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        )
        self.assert_names(self.cert, "broken")

    def test_key_of_another_certificate(self) -> None:
        _, self.key = certificates.client_identity().write(self.directory, "other")
        self.assert_names(self.key, "does not belong", self.cert)

    def test_key_with_password(self) -> None:
        """It is refused with a hint; nobody is asked at a terminal."""
        Path(self.key).write_bytes(certificates.server_identity().key_pem(b"secret"))
        self.assert_names(self.key, "password")

    def test_client_ca(self) -> None:
        empty = self.directory / "empty.crt"
        empty.write_text("")
        self.assert_names(str(empty), "no CA certificate", client_ca_file=str(empty))
        self.assert_names(self.cert, "CA of the clients", require_client_cert=True)


class ReloadTests(FilesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.events = EventLoggingObserver.createWithCleanup(
            self,  # type: ignore[arg-type]
            globalLogPublisher,
        )

    def logged(self, level: Any) -> list[Any]:
        return [event for event in self.events if event["log_level"] == level]

    def served(self, server: ReloadingServerContext) -> bytes | None:
        _, theirs = shake(server(), self.client())
        return theirs.getpeercert(True)

    def test_new_files(self) -> None:
        """New files are served to the next connection after the check interval."""
        server = self.server()
        first = server()
        new = certificates.authority().issue("localhost", "renewed.example")
        new.write(self.directory, "server")
        self.clock.advance(CHECK_INTERVAL * 0.9)
        self.assertIs(server(), first)
        self.clock.advance(CHECK_INTERVAL * 0.1)
        self.assertEqual(self.served(server), new.certificate_der)
        self.assertEqual(len(self.logged(LogLevel.info)), 1)

    def test_unchanged_files(self) -> None:
        server = self.server()
        first = server()
        self.clock.advance(1000)
        self.assertIs(server(), first)

    def test_link_that_turns(self) -> None:
        """A mounted secret changes by a link; the times and sizes stay."""
        for name, identity in (
            ("old", certificates.server_identity()),
            ("new", certificates.authority().issue("localhost")),
        ):
            (self.directory / name).mkdir()
            for path in identity.write(self.directory / name, "tls"):
                content = Path(path).read_bytes()
                Path(path).write_bytes(content.ljust(2000, b"\n"))
                os.utime(path, (1_000_000, 1_000_000))
        link = self.directory / "data"
        link.symlink_to("old")
        self.cert, self.key = str(link / "tls.crt"), str(link / "tls.key")
        server = self.server()
        before = self.served(server)
        (self.directory / "data2").symlink_to("new")
        (self.directory / "data2").rename(link)
        self.clock.advance(CHECK_INTERVAL)
        self.assertNotEqual(self.served(server), before)

    def test_half_written(self) -> None:
        """A bad file keeps the old context, is logged once, and heals."""
        server = self.server()
        old = certificates.server_identity().certificate_der
        new = certificates.authority().issue("localhost")
        Path(self.cert).write_bytes(new.certificate_pem)
        for _ in range(5):
            self.clock.advance(CHECK_INTERVAL)
            self.assertEqual(self.served(server), old)
        (event,) = self.logged(LogLevel.error)
        self.assertIn("does not belong", event["reason"])
        Path(self.key).unlink()
        self.clock.advance(CHECK_INTERVAL)
        self.assertEqual(self.served(server), old)
        self.assertEqual(len(self.logged(LogLevel.error)), 2)
        Path(self.key).write_bytes(new.key_pem())
        self.clock.advance(CHECK_INTERVAL)
        self.assertEqual(self.served(server), new.certificate_der)

    def test_client_ca_changes(self) -> None:
        """Another CA of clients counts from the next connection on."""
        mine = certificates.client_identity().write(self.directory, "client")
        client = self.client(identity=mine)
        trusted = self.directory / "clients.crt"
        certificates.authority().write(self.directory, "clients.crt")
        server = self.server(client_ca_file=str(trusted), require_client_cert=True)
        shake(server(), client)
        certificates.other_authority().write(self.directory, "clients.crt")
        self.clock.advance(CHECK_INTERVAL)
        self.assertRaises(ssl.SSLCertVerificationError, shake, server(), client)


class ClientContextTests(FilesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.context = CertificateFiles(self.cert, self.key).load(
            (), ssl.TLSVersion.TLSv1_2
        )

    def test_ca_as_data(self) -> None:
        """PEM as text or bytes, and DER."""
        pem = certificates.authority().pem
        der = certificates.authority().identity.certificate_der
        for data in (pem, pem.encode(), der):
            shake(self.context, client_context(ca_data=data))

    def test_untrusted(self) -> None:
        self.assertRaises(
            ssl.SSLCertVerificationError, shake, self.context, client_context()
        )
        only = client_context(
            ca_data=certificates.other_authority().pem, system_pool=False
        )
        self.assertEqual(len(only.get_ca_certs()), 1)
        self.assertRaises(ssl.SSLCertVerificationError, shake, self.context, only)

    def test_name(self) -> None:
        shake(self.context, self.client(), "127.0.0.1")
        self.assertRaises(
            ssl.SSLCertVerificationError,
            shake,
            self.context,
            self.client(),
            "evil.example",
        )

    def test_insecure(self) -> None:
        shake(self.context, client_context(insecure=True), "evil.example")

    def test_version(self) -> None:
        """A server that knows TLS 1.2 only is refused unless that is allowed."""
        self.context.maximum_version = ssl.TLSVersion.TLSv1_2
        self.assertRaises(ssl.SSLError, shake, self.context, self.client())
        shake(self.context, self.client(minimum_version=ssl.TLSVersion.TLSv1_2))

    def test_bad_files(self) -> None:
        missing = str(self.directory / "no.crt")
        one: Any = {"identity": identity_files(missing, None)}
        for options in ({"ca_file": missing}, one):
            error = self.assertRaises(ConfigurationError, client_context, **options)
            self.assertIn(missing, str(error))
        for data in ("", "nonsense", b"nonsense"):
            error = self.assertRaises(ConfigurationError, client_context, ca_data=data)
            self.assertIn("CA certificate", str(error))


class PinTests(SynchronousTestCase):
    def test_pin(self) -> None:
        """It is the digest of the key as ``curl`` and ``openssl`` compute it."""
        identity = certificates.server_identity()
        spki = identity.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = base64.b64encode(hashlib.sha256(spki).digest()).decode()
        pin = f"sha256//{digest}"
        self.assertEqual(certificate_pin(identity.certificate_der), pin)
        self.assertEqual(certificate_pin(identity.certificate_pem), pin)
        self.assertEqual(certificate_pin(identity.certificate_pem.decode()), pin)
        renewed = certificates.other_authority().issue("x", key=identity.key)
        self.assertEqual(certificate_pin(renewed.certificate_der), pin)

    def test_garbage(self) -> None:
        der = certificates.server_identity().certificate_der
        for junk in (b"", b"\x30", b"\x30\x82\xff\xff", der[:60], "no pem"):
            self.assertRaises(ValueError, certificate_pin, junk)
            self.assertRaises(ValueError, certificate_validity, junk)


class ValidityTests(SynchronousTestCase):
    def test_dates(self) -> None:
        """They are read as `cryptography` reads them, from both forms."""
        identity = certificates.server_identity()
        expected = (
            identity.certificate.not_valid_before_utc,
            identity.certificate.not_valid_after_utc,
        )
        self.assertEqual(certificate_validity(identity.certificate_der), expected)
        self.assertEqual(certificate_validity(identity.certificate_pem), expected)

    def test_far_future(self) -> None:
        """From 2050 on dates are written in another form."""
        end = datetime(2061, 2, 3, 4, 5, 6, tzinfo=UTC)
        identity = certificates.authority().issue("localhost", end=end)
        self.assertEqual(certificate_validity(identity.certificate_der)[1], end)


class ServerErrorTests(LayerTestCase):
    def test_untrusted(self) -> None:
        """Our own certificate does not please the client: its alert says so."""
        self.accept()
        peer = BufferPeer(client_context(), "localhost")
        self.assertRaises(
            ssl.SSLCertVerificationError, peer.exchange, self.layer, self.transport
        )
        self.layer.dataReceived(peer.outgoing.read())
        self.assert_failed("alert", "unknown ca")


class ClientErrorTests(ClientTestCase):
    def test_wrong_name(self) -> None:
        layer = self.connect("evil.example")
        with self.assertRaises(ssl.SSLError):
            self.answer(layer, certificates.server_identity())
        self.assert_failed("name-mismatch", "evil.example")

    def test_untrusted(self) -> None:
        layer = self.connect("localhost")
        with self.assertRaises(ssl.SSLError):
            self.answer(layer, certificates.other_authority().issue("localhost"))
        self.assert_failed("untrusted", "CA certificate")

    def test_expired(self) -> None:
        layer = self.connect("localhost")
        with self.assertRaises(ssl.SSLError):
            self.answer(
                layer, certificates.authority().issue("localhost", expired=True)
            )
        self.assert_failed("expired", "clock")

    def test_not_tls(self) -> None:
        layer = self.connect("localhost")
        layer.dataReceived(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.assert_failed("not-tls", "does not use TLS")

    def test_old_server(self) -> None:
        layer = self.connect("localhost")
        context = server_context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        peer = BufferPeer(context, server_side=True)
        with self.assertRaises(ssl.SSLError):
            peer.exchange(layer, self.transport)
        layer.dataReceived(peer.outgoing.read())
        self.assert_failed("version")
