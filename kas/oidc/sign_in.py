"""Registration of the authenticator for an identity provider, as configured."""

from __future__ import annotations

from collections.abc import Callable, Collection

from kas.config.oidc import OpenIdConnect
from kas.http_client import make_agent
from kas.identity.authenticators import Authenticators
from kas.identity.file_authenticator import FileAuthenticator
from kas.oidc.authenticator import TOKEN_PREFIX, OidcAuthenticator
from kas.oidc.keys import ProviderKeys
from tunnel.program.runtime import Runtime

__all__ = ["serve_sign_in"]


def serve_sign_in(
    settings: OpenIdConnect,
    runtime: Runtime,
    identity: FileAuthenticator,
    authenticators: Authenticators,
    in_use: Callable[[], Collection[str]],
) -> None:
    """
    Register an authenticator for tokens of the identity provider.

    :param in_use: returns the ids of credentials with open connections.
    """
    agent = make_agent(
        settings.ca_certificate_file,
        "oidc.ca_certificate_file",
        runtime.reactor,
        runtime.environ,
        connections=1,
    )
    keys = ProviderKeys(settings, agent, runtime.reactor)
    runtime.metrics.register(keys)
    authenticator = OidcAuthenticator(
        settings, keys, identity.find_agent, in_use, runtime
    )
    authenticators.add(authenticator, TOKEN_PREFIX)
    authenticators.run(authenticator)
