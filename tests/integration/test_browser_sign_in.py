"""Pages of a module that sign users in with a certified identity provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.integration import browser
from tests.integration.cluster import ControlPlane
from tests.integration.identity_providers import NodeProvider
from tests.integration.module_kas import python_path
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way
from tests.integration.sign_in_module import DROPIN, PREFIX
from tests.integration.stack import Kas, with_agent
from tools.ports import free_port

_SECRET = "a secret of the page's client"

_SETTINGS = """\
oidc:
  issuer: {issuer}
  client_id: page
  client_secret_file: {secret}
  scopes: [groups]
  access:
  - groups: ["oidc:dev"]
    agents: [main]
web:
  listen: {{address: "127.0.0.1:{port}", development_certificate: false}}
modules:
  sign_in_test: {{base: "http://127.0.0.1:{port}"}}
"""


class _Pages:
    """The pages of the module, for one browser."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}{PREFIX}"
        self._browser = browser.new_browser()

    def visit(self, path: str) -> str:
        """Go there, and through the forms of the provider."""
        return browser.visit(f"{self._base}/{path}", self._browser)

    def ask(self, path: str) -> tuple[int, Any]:
        """The status and the content of a page without forms."""
        try:
            with urlopen(f"{self._base}/{path}", timeout=30) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)


@pytest.fixture
def port() -> int:
    """Where the pages are."""
    return free_port()


@pytest.fixture
def provider(tmp_path: Path, port: int) -> Iterator[NodeProvider]:
    """One that knows the page."""
    found = NodeProvider(tmp_path, port)
    yield found
    found.process.kill()


@pytest.fixture
def served(
    provider: NodeProvider,
    lone_kas: Kas,
    control_plane: ControlPlane,
    port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Kas]:
    """A kas with the module and the agent main."""
    secret = tmp_path / "client.secret"
    secret.write_text(_SECRET)
    secret.chmod(0o600)
    lone_kas.settings = _SETTINGS.format(
        issuer=provider.issuer, secret=secret, port=port
    )
    plugins = tmp_path / "twisted" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "tests_sign_in_modules.py").write_text(DROPIN)
    for name, text in python_path(tmp_path).items():
        monkeypatch.setenv(name, text)
    with with_agent(lone_kas, control_plane.agent):
        yield lone_kas


def test_pages(provider: NodeProvider, served: Kas, port: int) -> None:
    """Two sessions of a user: both reach the cluster, and end together."""
    pages = _Pages(port)
    one = json.loads(pages.visit("in?as=one"))
    assert (one["subject"], one["username"]) == ("alice", "oidc:alice")
    assert one["session"] and one["refresh_token"]
    two = json.loads(pages.visit("in?as=two"))
    assert two["session"] == one["session"]
    assert two["token"] != one["token"]

    def status(token: str) -> int:
        way = Way("raw", served.proxy, served.authority, f"oidc:main:{token}")
        return way.ask("GET", "/readyz").status

    assert status(one["token"]) == status(two["token"]) == 200

    # The provider takes each refresh token once.
    code, renewed = pages.ask("renew?as=one")
    assert code == 200
    assert renewed["refresh_token"] != one["refresh_token"]
    assert status(renewed["token"]) == 200
    assert provider.granted("refresh_token") == 1

    # The browser signs out at the provider, which tells kas.
    assert pages.visit("out?as=two") == "You are signed out."
    eventually(lambda: pages.ask("who?as=one")[0] == 401, what="the session ended")

    # The provider stops, and forgets its sessions.
    again = json.loads(pages.visit("in?as=three"))
    assert again["session"] != one["session"]
    provider.process.stop()
    assert pages.ask("renew?as=three")[1]["status"] == "UNAVAILABLE"
    provider.start()
    code, refused = pages.ask("renew?as=three")
    assert (code, refused["status"]) == (401, "UNAUTHENTICATED")
    assert "invalid_grant" in refused["reason"]

    log = (served.folder / "kas.log").read_text()
    assert "users cannot sign in with the identity provider" in log
    for found in (one, two, renewed, again):
        for secret in (found["token"].split(".")[1], found["refresh_token"], _SECRET):
            assert secret not in log
