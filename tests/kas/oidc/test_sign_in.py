"""Sign-in as configured, with a provider behind real sockets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import pytest_twisted
from twisted.internet import reactor as installed
from twisted.internet.defer import maybeDeferred

from kas.config.oidc import OidcAccess, OpenIdConnect
from kas.identity.authenticators import Authenticators
from kas.identity.file_authenticator import FileAuthenticator
from kas.modules.users import HeldCredentials, ModuleUsers
from kas.oidc.sign_in import serve_sign_in
from kas.state.directory import StateDirectory
from tests.fakes.identity_provider import CLIENT_ID
from tests.fakes.signing_in import SigningIn, signing_in
from tunnel.errors import CallError, Status
from tunnel.hosting.scope import ModuleScope
from tunnel.program.runtime import Runtime

reactor: Any = installed
BACK = "http://127.0.0.1/auth/callback"


def _visit(there: SigningIn, url: str) -> dict[str, str]:
    to = there.authorize(dict(parse_qsl(urlsplit(url).query)))
    return dict(parse_qsl(urlsplit(to).query))


@pytest_twisted.ensureDeferred
async def test_signed_in(tmp_path: Path) -> None:
    """From the button to the rights at an agent, and to the end."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of the client")
    secret.chmod(0o600)
    state = StateDirectory.open(tmp_path / "state")
    runtime = Runtime(reactor=reactor)
    identity = FileAuthenticator(state.file("identity.json"), runtime)
    authenticators = Authenticators(reactor)
    with signing_in() as there:
        there.secret = "a secret of the client"
        there.claims = {"sid": "session"}
        settings = OpenIdConnect(
            issuer=there.issuer,
            client_id=CLIENT_ID,
            client_secret_file=secret,
            access=(OidcAccess(users=("oidc:alice",), agents=("*",)),),
        )
        browser = serve_sign_in(settings, runtime, identity, authenticators, set)
        scope = ModuleScope("page", None, lambda _: None)
        users = ModuleUsers(scope, authenticators, HeldCredentials(), None, (browser,))
        (provider,) = users.sign_in_providers
        assert (provider.name, provider.title) == ("oidc", "127.0.0.1")
        begun = await provider.begin(BACK)
        answer = _visit(there, begun.url)
        found = await provider.finish(begun.secret, begun.state, answer, BACK)
        assert abs(found.expires_at - time.time() - 600) < 60
        with pytest.raises(CallError, match="has no access to an agent"):
            await maybeDeferred(users.authorize, found.kind, "none", found.token)
        renewed = await provider.renew(found)
        assert renewed.session == "session"
        assert renewed.refresh_token != found.refresh_token
        assert all(one.startswith("Basic ") for one in there.authorized)
        there.revoke()
        with pytest.raises(CallError, match="invalid_grant") as caught:
            await provider.renew(renewed)
        assert caught.value.status is Status.UNAUTHENTICATED
        assert await provider.end_url(found, BACK) == ""
    # The provider does not listen any longer.
    with pytest.raises(CallError) as caught:
        await provider.renew(renewed)
    assert caught.value.status is Status.UNAVAILABLE
