"""Credentials for the API server, and that they stay fresh."""

from __future__ import annotations

import base64
import os
import ssl
import sys
from pathlib import Path

import attrs
import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from zope.interface.verify import verifyObject

from agentk.kubernetes.cluster import CHECK_INTERVAL, ClusterAccess, find_cluster
from agentk.kubernetes.kubeconfig import Target
from tests.agentk.credentials import NOW, PLAIN, TLS, certificate
from tunnel.api import ICluster
from tunnel.errors import ConfigurationError


class TestStatic:
    """Credentials that stand in the kubeconfig."""

    def access(self, target: Target) -> ClusterAccess:
        return ClusterAccess(target, Clock(), lambda: NOW, {})

    def test_provides_what_it_says(self) -> None:
        access = self.access(attrs.evolve(TLS, path_prefix="/x"))
        verifyObject(ICluster, access)
        assert (access.host, access.port, access.path_prefix) == ("h", 80, "/x")
        assert access.host_header == b"h:80"

    def test_authorization(self) -> None:
        assert self.access(PLAIN).authorization() is None
        token = self.access(attrs.evolve(PLAIN, token="abc"))
        assert token.authorization() == b"Bearer abc"
        basic = self.access(attrs.evolve(PLAIN, username="u", password="p:é"))
        expected = base64.b64encode("u:p:é".encode())
        assert basic.authorization() == b"Basic " + expected

    def test_plain_http_has_no_context(self) -> None:
        assert self.access(PLAIN).tls_context() is None

    def test_context(self) -> None:
        pem, key = certificate("a")
        access = self.access(
            attrs.evolve(TLS, ca_data=pem, cert_data=pem, key_data=key)
        )
        context = access.tls_context()
        assert context is not None
        assert context.verify_mode is ssl.CERT_REQUIRED
        # of the given authority only: the system's would open a back door
        assert len(context.get_ca_certs()) == 1
        assert access.tls_context() is context
        assert access.tls_server_name() == "h"

    def test_server_name(self) -> None:
        access = self.access(attrs.evolve(TLS, tls_server_name="kubernetes"))
        assert access.tls_server_name() == "kubernetes"

    def test_insecure(self) -> None:
        context = self.access(attrs.evolve(TLS, insecure=True)).tls_context()
        assert context is not None
        assert context.verify_mode is ssl.CERT_NONE

    def test_no_key_is_left_behind(self) -> None:
        pem, key = certificate("a")
        before = set(os.listdir("/proc/self/fd"))
        self.access(attrs.evolve(TLS, cert_data=pem, key_data=key))
        assert set(os.listdir("/proc/self/fd")) == before

    def test_what_is_no_certificate(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^here: "):
            self.access(attrs.evolve(TLS, ca_data=b"nonsense"))

    def test_renewed_authority(self, tmp_path: Path) -> None:
        file = tmp_path / "ca.crt"
        file.write_bytes(certificate("a")[0])
        access = self.access(attrs.evolve(TLS, ca_file=file))
        first = access.tls_context()
        file.write_bytes(b"half")
        logged = EventLoggingObserver()
        globalLogPublisher.addObserver(logged)
        try:
            assert access.tls_context() is first
            assert access.tls_context() is first
        finally:
            globalLogPublisher.removeObserver(logged)
        assert len(logged) == 1
        pem = certificate("b")[0]
        file.write_bytes(pem + b"\n")
        second = access.tls_context()
        assert second is not None
        assert second is not first


class TestTokenFile:
    """A token that the kubelet replaces."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "token"
        path.write_text("one\n")
        return path

    def test_read_again_when_it_changed(self, file: Path) -> None:
        clock = Clock()
        access = ClusterAccess(
            attrs.evolve(PLAIN, token_file=file), clock, lambda: NOW, {}
        )
        assert access.authorization() == b"Bearer one"
        file.write_text("second")
        clock.advance(CHECK_INTERVAL - 1)
        assert access.authorization() == b"Bearer one"
        clock.advance(1)
        assert access.authorization() == b"Bearer second"

    def test_at_once_after_a_refusal(self, file: Path) -> None:
        access = ClusterAccess(
            attrs.evolve(PLAIN, token_file=file), Clock(), lambda: NOW, {}
        )
        file.write_text("second")
        access.rejected()
        assert access.authorization() == b"Bearer second"

    @pytest.mark.parametrize("text", ["", "a b", "a\nb", "é", "x" * 70_000, None])
    def test_not_a_token(self, file: Path, text: str | None) -> None:
        clock = Clock()
        target = attrs.evolve(PLAIN, token_file=file)
        access = ClusterAccess(target, clock, lambda: NOW, {})
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        for _ in range(3):
            clock.advance(CHECK_INTERVAL)
            assert access.authorization() == b"Bearer one"
        with pytest.raises(ConfigurationError, match="token"):
            ClusterAccess(target, clock, lambda: NOW, {})


def test_find_cluster(tmp_path: Path) -> None:
    for name, data in (("token", b"t"), ("ca.crt", certificate("a")[0])):
        (tmp_path / name).write_bytes(data)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    access = find_cluster(
        Clock(), lambda: NOW, None, None, environ, service_account=tmp_path
    )
    assert access.authorization() == b"Bearer t"
    assert access.tls_server_name() == "10.0.0.1"


def test_nothing_heavy_is_imported() -> None:
    """agentk has to stay small."""
    import subprocess

    code = (
        "import sys, agentk.kubernetes.cluster, agentk.config\n"
        "heavy = {'kubernetes', 'klein', 'treq', 'twisted.internet.reactor'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
