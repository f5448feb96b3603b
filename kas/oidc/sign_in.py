"""Sign-in with an identity provider, as configured."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from twisted.logger import Logger

from kas.config.oidc import OpenIdConnect, read_client_secret
from kas.http_client import make_agent
from kas.identity.authenticators import Authenticators
from kas.identity.file_authenticator import FileAuthenticator
from kas.oidc.authenticator import TOKEN_PREFIX, OidcAuthenticator
from kas.oidc.browser_sign_in import BrowserSignIn
from kas.oidc.description import ProviderDescription
from kas.oidc.keys import ProviderKeys
from kas.oidc.requests import ProviderRequests
from tunnel.program.runtime import Runtime
from tunnel.toolkit.files import WatchedFile, file_version, warn_if_public

__all__ = ["client_secret", "serve_sign_in"]


#: Number of idle connections to the provider that are kept, for the renewals of many
#: users.
CONNECTIONS = 4

#: Seconds between two checks whether the file with the client's secret has changed.
LOOK_INTERVAL = 1.0

_log = Logger()


def serve_sign_in(
    settings: OpenIdConnect,
    runtime: Runtime,
    identity: FileAuthenticator,
    authenticators: Authenticators,
    in_use: Callable[[], Collection[str]],
) -> BrowserSignIn:
    """
    Register an authenticator for tokens of the identity provider, and return the
    sign-in for pages.

    :param in_use: returns the ids of credentials with open connections.
    """
    clock = runtime.reactor
    agent = make_agent(
        settings.ca_certificate_file,
        "oidc.ca_certificate_file",
        clock,
        runtime.environ,
        connections=CONNECTIONS,
    )
    requests = ProviderRequests(agent, clock)
    description = ProviderDescription(settings.issuer, requests, clock)
    keys = ProviderKeys(settings, description, requests, clock)
    runtime.metrics.register(keys)
    authenticator = OidcAuthenticator(settings, keys, identity, in_use, runtime)
    authenticators.add(authenticator, TOKEN_PREFIX)
    authenticators.run(authenticator)
    secret = client_secret(settings, runtime)
    browser = BrowserSignIn(
        settings, description, requests, authenticator, secret, clock, runtime.now
    )
    runtime.metrics.register(browser)
    return browser


def client_secret(settings: OpenIdConnect, runtime: Runtime) -> Callable[[], str]:
    """
    Return a function that returns the client's secret, also after a change of its file;
    an empty text without a secret.
    """
    file = settings.client_secret_file
    if file is None:
        return lambda: ""

    def read() -> str:
        secret = read_client_secret(file)
        warn_if_public(file)
        return secret

    def refused(error: Exception) -> None:
        _log.error(
            "oidc.client_secret_file: {problem}; the previous secret stays in effect",
            problem=str(error),
        )

    watched = WatchedFile(
        partial(file_version, file),
        read,
        refused,
        unusable=ValueError,
        seconds=runtime.reactor.seconds,
        interval=LOOK_INTERVAL,
    )
    return watched.get
