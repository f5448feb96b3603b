"""kasctl login with a certified identity provider, for kubectl through kas."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kas.ctl.kept_tokens import KeptTokens, all_kept, cache_folder
from tests.integration import browser
from tests.integration.cluster import ControlPlane
from tests.integration.identity_providers import NodeProvider
from tests.integration.kubectl import Kubectl
from tests.integration.processes import Process, eventually, script
from tests.integration.stack import Kas, with_agent

_CLIENT = "kubernetes"

_SETTINGS = f"""\
oidc:
  issuer: {{issuer}}
  client_id: {_CLIENT}
  keys_ttl: 1s
  access:
  - groups: ["oidc:dev"]
    agents: [main]
"""


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[NodeProvider]:
    """One that runs."""
    found = NodeProvider(tmp_path)
    yield found
    found.process.kill()


@pytest.fixture
def served(
    provider: NodeProvider, lone_kas: Kas, control_plane: ControlPlane
) -> Iterator[Kas]:
    """A kas of the provider, with the agent main."""
    lone_kas.settings = _SETTINGS.format(issuer=provider.issuer)
    with with_agent(lone_kas, control_plane.agent):
        yield lone_kas


def _soon_over(kept: KeptTokens) -> str:
    """Make the ID token one that has to be renewed; its refresh token."""
    tokens = kept.read()
    assert tokens is not None and tokens.refresh_token is not None
    kept.write(tokens._replace(expires_at=time.time() + 4))
    return tokens.refresh_token


def test_login(
    provider: NodeProvider,
    served: Kas,
    make_kubectl: Callable[..., Kubectl],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signed in by kubectl, renewed once, by a code, and after new keys."""
    direct = make_kubectl("direct")
    there = ("--issuer", provider.issuer, "--client-id", _CLIENT, "--scope", "groups")
    kubeconfig = tmp_path / "person.kubeconfig"
    served.ctl(
        *("kubeconfig", "--agent", "main", "--oidc-issuer", provider.issuer),
        *("--oidc-client-id", _CLIENT, "--oidc-scope", "groups"),
        *("--output-file", kubeconfig),
    )
    monkeypatch.setenv("PATH", f"{script('kasctl').parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    started = shlex.join([sys.executable, browser.__file__])
    monkeypatch.setenv("BROWSER", f"{started} %s")
    person = Kubectl(direct.program, kubeconfig, ours=direct.ours)

    def check() -> None:
        user = person.json("auth", "whoami")["status"]["userInfo"]
        assert user["username"] == "oidc:alice"
        assert user["groups"] == ["oidc:dev", "system:authenticated"]

    # kubectl starts kasctl, and that a browser; the next one needs neither.
    check()
    check()
    assert provider.granted("authorization_code") == 1
    (kept,) = all_kept(cache_folder(os.environ))
    first = _soon_over(kept)

    # Several at once: the provider would take back what is renewed with a token twice.
    several = [
        subprocess.Popen(
            person.command("auth", "whoami"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=person.environment(),
        )
        for _ in range(3)
    ]
    for one in several:
        out, said = one.communicate(timeout=60)
        assert one.returncode == 0 and b"oidc:alice" in out, said
    assert provider.granted("refresh_token") == 1
    tokens = kept.read()
    assert tokens is not None and tokens.refresh_token not in (None, first)

    # Without a browser here.
    command: list[str | Path] = [script("kasctl"), "login", "--device", *there]
    signing_in = Process("kasctl", command, tmp_path / "login.log")
    browser.visit(signing_in.wait_for(r"or open (\S+)")[1])
    assert signing_in.ended() == 0, signing_in.said()
    assert kept.read() not in (None, tokens)
    check()
    assert provider.granted("authorization_code") == 1

    # The provider has other keys, and knows no refresh token: the person signs in.
    provider.process.stop()
    provider.start()
    eventually(lambda: b"logged in" in person("auth", "whoami").err, 40, pause=0.5)
    before = _soon_over(kept)
    eventually(lambda: person("auth", "whoami").code == 0, 40, pause=0.5)
    check()
    assert provider.granted("authorization_code") == 1
    tokens = kept.read()
    assert tokens is not None and tokens.refresh_token is not None

    # Nothing of it is in what kas and kasctl say.
    for log in (served.folder / "kas.log", tmp_path / "login.log"):
        text = log.read_text()
        for secret in (*tokens.id_token.split(".")[1:], tokens.refresh_token, before):
            assert secret not in text
    done = subprocess.run(
        [script("kasctl"), "logout"],
        env=person.environment(),
        capture_output=True,
        check=True,
    )
    assert done.stderr == b"The tokens were removed.\n"
    assert kept.read() is None
