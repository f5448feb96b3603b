"""agentk and the ``kubernetes`` library get the same out of a kubeconfig."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import pytest_twisted
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config
from twisted.internet.task import Clock

from agentk.kubernetes.cluster import ClusterAccess
from agentk.kubernetes.exec_credential import run_plugin
from agentk.kubernetes.kubeconfig import Target, load_kubeconfig
from tests.agentk.credentials import NOW, V1, certificate

PEM, KEY = certificate("a")
OTHER, OTHER_KEY = certificate("b")
FILES = {"a.crt": PEM, "a.key": KEY, "b.crt": OTHER, "token": b"from-a-file"}

_servers = st.builds(
    "{}://{}{}{}".format,
    st.sampled_from(["http", "https"]),
    st.sampled_from(["h", "api.example.org", "127.0.0.1", "[::1]"]),
    st.sampled_from(["", ":6443"]),
    st.sampled_from(["", "/", "/k8s/clusters/c-1", "/k8s/"]),
)


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


_authorities = st.sampled_from(
    [
        {},
        {"certificate-authority": "b.crt"},
        {"certificate-authority": "./b.crt"},
        {"certificate-authority-data": _encoded(OTHER)},
        {"certificate-authority-data": _encoded(PEM), "certificate-authority": "b.crt"},
        {"insecure-skip-tls-verify": True},
        {"insecure-skip-tls-verify": False, "certificate-authority": "b.crt"},
    ]
)
_names = st.sampled_from([{}, {"tls-server-name": "kubernetes"}])
_certificates = st.sampled_from(
    [
        {},
        {"client-certificate": "a.crt", "client-key": "a.key"},
        {
            "client-certificate-data": _encoded(OTHER),
            "client-key-data": _encoded(OTHER_KEY),
            "client-certificate": "a.crt",
            "client-key": "a.key",
        },
        {"client-certificate-data": _encoded(PEM), "client-key": "a.key"},
    ]
)
_secrets = st.sampled_from(
    [
        {},
        {"token": "abc.def-_~"},
        {"tokenFile": "token"},
        {"username": "u", "password": "p:w"},
        {"token": "abc", "username": "u", "password": "p"},
    ]
)


def _write(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """A kubeconfig with another cluster, user and context beside these."""
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [
            {"name": "other", "cluster": {"server": "https://other"}},
            {"name": "c", "cluster": cluster},
        ],
        "users": [
            {"name": "other", "user": {"token": "x"}},
            {"name": "u", "user": user},
        ],
        "contexts": [
            {"name": "other", "context": {"cluster": "other", "user": "other"}},
            {"name": "x", "context": {"cluster": "c", "user": "u"}},
        ],
    }
    path = folder / "config"
    path.write_text(json.dumps(content))
    return path


def _by_the_library(path: Path) -> Configuration:
    found = Configuration()
    load_kube_config(str(path), client_configuration=found, persist_config=False)
    return found


def _content(data: bytes | None, file: Path | None) -> bytes | None:
    return data if data is not None or file is None else file.read_bytes()


def _same_place(ours: Target, theirs: Configuration) -> None:
    assert ours.url == theirs.host
    if ours.tls:
        assert ours.insecure != theirs.verify_ssl
        assert (ours.tls_server_name or None) == theirs.tls_server_name
        authority = theirs.ssl_ca_cert
        assert _content(ours.ca_data, ours.ca_file) == _content(
            None, None if authority is None else Path(authority)
        )


@given(_servers, _authorities, _names, _certificates, _secrets)
def test_what_is_written_down(
    server: str,
    authority: dict[str, Any],
    name: dict[str, Any],
    pair: dict[str, Any],
    secret: dict[str, Any],
) -> None:
    with TemporaryDirectory() as folder:
        cluster = {"server": server, **authority, **name}
        path = _write(Path(folder), cluster, {**pair, **secret})
        ours = load_kubeconfig([path], None)
        theirs = _by_the_library(path)
        _same_place(ours, theirs)
        access = ClusterAccess(ours, Clock(), lambda: NOW, {})
        found = access.authorization()
        assert (found or b"").decode() == theirs.api_key.get("BearerToken", "")
        if ours.tls:
            for data, file, named in (
                (ours.cert_data, ours.cert_file, theirs.cert_file),
                (ours.key_data, ours.key_file, theirs.key_file),
            ):
                other = None if named is None else Path(named)
                assert _content(data, file) == _content(None, other)


#: Prints all that it is told as the token.
_ECHO = """\
import base64, json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
told = json.dumps([sys.argv[1:], os.environ.get("X"), info], sort_keys=True)
token = base64.b64encode(told.encode()).decode()
json.dump({**info, "status": {"token": token}}, sys.stdout)
"""


@pytest.mark.parametrize("more", [{}, {"provideClusterInfo": True}])
@pytest_twisted.ensureDeferred
async def test_what_a_plugin_is_told(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twisted.internet import reactor

    monkeypatch.setenv("X", "from the environment")
    (tmp_path / "echo.py").write_text(_ECHO)
    plugin = {
        "apiVersion": V1,
        "command": sys.executable,
        "args": [str(tmp_path / "echo.py"), "a", "b c"],
        "env": [{"name": "X", "value": "from the kubeconfig"}],
        **more,
    }
    cluster = {
        "server": "https://h:6443/k8s",
        "certificate-authority-data": _encoded(PEM),
        "tls-server-name": "kubernetes",
    }
    path = _write(tmp_path, cluster, {"exec": plugin})
    ours = load_kubeconfig([path], None)
    theirs = _by_the_library(path)
    _same_place(ours, theirs)
    got = await run_plugin(reactor, ours, {"PATH": "/usr/bin:/bin"})
    told = json.loads(base64.b64decode(got.token))
    token = theirs.api_key["BearerToken"].removeprefix("Bearer ")
    assert told == json.loads(base64.b64decode(token))
    assert told[:2] == [["a", "b c"], "from the kubeconfig"]
    assert ("cluster" in told[2]["spec"]) == bool(more)


@pytest_twisted.ensureDeferred
async def test_a_certificate_of_a_plugin(tmp_path: Path) -> None:
    from twisted.internet import reactor

    status = {"clientCertificateData": PEM.decode(), "clientKeyData": KEY.decode()}
    (tmp_path / "printed").write_text(
        json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})
    )
    plugin = {
        "apiVersion": V1,
        "command": "cat",
        "args": [str(tmp_path / "printed")],
    }
    path = _write(tmp_path, {"server": "https://h"}, {"exec": plugin})
    ours = load_kubeconfig([path], None)
    theirs = _by_the_library(path)
    got = await run_plugin(reactor, ours, {"PATH": "/usr/bin:/bin"})
    assert theirs.cert_file is not None and theirs.key_file is not None
    assert got.certificate == Path(theirs.cert_file).read_bytes()
    assert got.key == Path(theirs.key_file).read_bytes()
