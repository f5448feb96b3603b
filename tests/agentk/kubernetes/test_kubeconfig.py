"""Finding the API server: kubeconfig files, the pod's account, and clear refusals."""

from __future__ import annotations

import base64
from pathlib import Path
from textwrap import dedent

import pytest

from agentk.kubernetes.kubeconfig import (
    Target,
    find_target,
    in_cluster,
    load_kubeconfig,
)
from tunnel.errors import ConfigurationError

SIMPLE = """\
apiVersion: v1
kind: Config
current-context: prod
preferences: {}
clusters:
- name: c
  cluster: {server: 'https://api.example.org:6443/k8s/c1/'}
contexts:
- name: prod
  context: {cluster: c, user: u, namespace: apps}
- name: test
  context: {cluster: c, user: ''}
users:
- name: u
  user: {token: abc}
"""


def write(path: Path, text: str) -> Path:
    path.write_text(dedent(text))
    return path


def config(cluster: str, user: str = "{}") -> str:
    return f"""
clusters: [{{name: c, cluster: {cluster}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
users: [{{name: u, user: {user}}}]
current-context: x
"""


def refused(tmp_path: Path, text: str, context: str | None = None) -> str:
    path = write(tmp_path / "config", text)
    with pytest.raises(ConfigurationError) as caught:
        load_kubeconfig([path], context)
    return str(caught.value)


def loaded(tmp_path: Path, text: str) -> Target:
    return load_kubeconfig([write(tmp_path / "config", text)], None)


def test_the_current_context(tmp_path: Path) -> None:
    got = loaded(tmp_path, SIMPLE)
    assert (got.tls, got.host, got.port) == (True, "api.example.org", 6443)
    assert got.authority == "api.example.org:6443"
    assert got.path_prefix == "/k8s/c1"
    assert (got.namespace, got.token) == ("apps", "abc")
    assert got.origin == f"context 'prod' of {tmp_path}/config"
    assert "abc" not in repr(got)


def test_another_context(tmp_path: Path) -> None:
    path = write(tmp_path / "config", SIMPLE)
    assert load_kubeconfig([path], "test").token == ""


@pytest.mark.parametrize(
    ("server", "host", "port", "authority"),
    [
        ("https://h", "h", 443, "h"),
        ("http://h", "h", 80, "h"),
        ("http://127.0.0.1:8001", "127.0.0.1", 8001, "127.0.0.1:8001"),
        ("https://[::1]:6443", "::1", 6443, "[::1]:6443"),
    ],
)
def test_servers(
    tmp_path: Path, server: str, host: str, port: int, authority: str
) -> None:
    got = loaded(tmp_path, config(f"{{server: '{server}'}}"))
    assert (got.host, got.port, got.authority) == (host, port, authority)
    assert got.tls == server.startswith("https")


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    for name in ("ca.crt", "u.crt", "u.key", "token"):
        (tmp_path / name).write_text("x")
    got = loaded(
        tmp_path,
        config(
            "{server: 'https://h', certificate-authority: ca.crt}",
            "{client-certificate: u.crt, client-key: ./u.key, tokenFile: token}",
        ),
    )
    assert got.ca_file == tmp_path / "ca.crt"
    assert got.cert_file == tmp_path / "u.crt"
    assert got.key_file == tmp_path / "u.key"
    assert got.token_file == tmp_path / "token"


def test_data_goes_before_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    data = base64.b64encode(b"PEM").decode()
    got = loaded(
        tmp_path,
        config(
            f"{{server: 'https://h', certificate-authority: x, "
            f"certificate-authority-data: {data}}}",
            f"{{client-certificate: x, client-certificate-data: {data}, "
            f"client-key: x, client-key-data: {data}}}",
        ),
    )
    assert (got.ca_file, got.cert_file, got.key_file) == (None, None, None)
    assert (got.ca_data, got.cert_data, got.key_data) == (b"PEM", b"PEM", b"PEM")


def test_several_files_the_first_wins(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    first = write(
        one / "config",
        """
        clusters: [{name: c, cluster: {server: 'https://first'}}]
        users: [{name: u, user: {exec: {
          apiVersion: client.authentication.k8s.io/v1, command: ./plugin}}}]
        """,
    )
    second = write(tmp_path / "config", SIMPLE)
    got = load_kubeconfig([tmp_path / "gone", first, second], None)
    assert got.host == "first"
    assert got.plugin is not None
    assert got.plugin_folder == one
    assert got.namespace == "apps"


def test_exec_with_nulls_as_clouds_write_it(tmp_path: Path) -> None:
    got = loaded(
        tmp_path,
        config(
            "{server: 'https://h'}",
            """{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: p,
            args: null, env: null, installHint: 'get it', provideClusterInfo: true,
            interactiveMode: IfAvailable}}""",
        ),
    )
    assert got.plugin is not None
    assert (got.plugin.args, got.plugin.env) == ((), ())
    assert got.plugin.provide_cluster_info


@pytest.mark.parametrize(
    ("cluster", "user", "says"),
    [
        ("{server: h}", "{}", "is not a URL such as https://host:6443"),
        ("{}", "{}", "is not a URL such as https://host:6443"),
        ("{server: 'ftp://h'}", "{}", "is not a URL such as https://host:6443"),
        ("{server: 'https://h:x'}", "{}", "is not a URL such as https://host:6443"),
        ("{server: 'https://u:p@h'}", "{}", "contains a user name"),
        ("{server: 'https://h', proxy-url: x}", "{}", "proxy-url is not supported"),
        (
            "{server: 'https://h', insecure-skip-tls-verify: true, "
            "certificate-authority-data: eA==}",
            "{}",
            "contradict each other",
        ),
        ("{server: 'https://h', certificate-authority: no}", "{}", "does not exist"),
        ("{server: 'https://h'}", "{tokenFile: no}", "does not exist; correct"),
        ("{server: 'https://h'}", "{client-key-data: eA==}", "require each other"),
        ("{server: 'https://h'}", "{auth-provider: {name: gcp}}", "an exec plugin"),
        ("{server: 'https://h'}", "{as: bob}", "'as' is not supported"),
        ("{server: 'https://h'}", "{token: 'a b'}", "users[0].user.token: "),
        ("{server: 'https://h'}", "{client-key-data: '***'}", "client-key-data"),
        (
            "{server: 'https://h'}",
            "{exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: p}}",
            "is not supported; supported versions: ",
        ),
        (
            "{server: 'https://h'}",
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: p, "
            "interactiveMode: Always}}",
            "agentk has no terminal",
        ),
    ],
)
def test_what_cannot_be_used(
    tmp_path: Path, cluster: str, user: str, says: str
) -> None:
    text = refused(tmp_path, config(cluster, user))
    assert says in text
    assert f"{tmp_path}/config" in text


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    text = config("{server: 'https://h'}", "{token: 'hunter 2', client-key-data: '!7'}")
    said = refused(tmp_path, text)
    assert "hunter" not in said
    assert "!7" not in said


def test_contexts_that_are_not_there(tmp_path: Path) -> None:
    said = refused(tmp_path, SIMPLE, "prd")
    assert "has no context 'prd'; did you mean 'prod'?" in said
    said = refused(tmp_path, SIMPLE.replace("current-context: prod\n", ""))
    assert "pass --context (available: prod, test)" in said
    said = refused(tmp_path, SIMPLE.replace("- name: c\n", "- name: d\n"))
    assert "has no cluster 'c'" in said
    said = refused(tmp_path, SIMPLE.replace("- name: u\n", "- name: v\n"))
    assert "has no user 'u'" in said


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_kubeconfig([tmp_path / "gone"], None, must_exist=True)
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_kubeconfig([tmp_path / "gone"], None)


class TestFindTarget:
    """Which of them it is."""

    @pytest.fixture
    def pod(self, tmp_path: Path) -> Path:
        root = tmp_path / "serviceaccount"
        root.mkdir()
        for name, text in (("token", "t"), ("ca.crt", "c"), ("namespace", "apps\n")):
            (root / name).write_text(text)
        return root

    POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}

    def test_a_pod(self, pod: Path) -> None:
        got = find_target(
            None, None, {**self.POD, "HOME": "/none"}, service_account=pod
        )
        assert (got.host, got.port, got.authority) == (
            "10.0.0.1",
            6443,
            "10.0.0.1:6443",
        )
        assert (got.token_file, got.ca_file) == (pod / "token", pod / "ca.crt")
        assert got.namespace == "apps"

    def test_a_pod_with_ipv6(self, pod: Path) -> None:
        environ = {**self.POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}
        assert in_cluster(environ, pod).authority == "[fd00::1]:6443"

    def test_a_pod_without_account(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError) as caught:
            in_cluster(self.POD, tmp_path)
        assert len(caught.value.problems) == 2
        assert "automountServiceAccountToken" in str(caught.value)

    def test_a_pod_with_a_strange_environment(self, pod: Path) -> None:
        with pytest.raises(ConfigurationError, match="KUBERNETES_SERVICE_PORT"):
            in_cluster({**self.POD, "KUBERNETES_SERVICE_PORT": "tcp://"}, pod)

    def test_what_is_told_comes_first(self, pod: Path, tmp_path: Path) -> None:
        path = write(tmp_path / "config", SIMPLE)
        got = find_target(str(path), None, self.POD, service_account=pod)
        assert got.host == "api.example.org"
        environ = {**self.POD, "KUBECONFIG": f":{path}:"}
        assert find_target(None, None, environ).host == "api.example.org"

    def test_the_usual_place(self, tmp_path: Path) -> None:
        (tmp_path / ".kube").mkdir()
        write(tmp_path / ".kube" / "config", SIMPLE)
        environ = {"HOME": str(tmp_path)}
        assert find_target(None, "test", environ).token == ""
        # a context is of a kubeconfig, also in a pod
        environ.update(self.POD)
        assert find_target(None, "test", environ).host == "api.example.org"

    def test_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="pass --kubeconfig FILE"):
            find_target(None, None, {"HOME": str(tmp_path)})
