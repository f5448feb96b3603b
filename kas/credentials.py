"""Credentials as a part of kas: from the identity file, GitLab and OpenID Connect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kas.agents.last_seen import KnownAgent
from kas.agents.registry import Registry
from kas.config.schema import KasConfiguration
from kas.gitlab.agents import OfGitLab
from kas.gitlab.part import GitLabPart, NoGitLab
from kas.identity.authenticators import Authenticators
from kas.identity.file_authenticator import FileAuthenticator
from kas.oidc.sign_in import serve_sign_in
from kas.state.directory import StateDirectory
from tunnel.api import CredentialRevoked, ISignInProvider
from tunnel.hosting.modules import Prepared
from tunnel.hosting.stores import Stores
from tunnel.program.parts import Part
from tunnel.program.runtime import Runtime

if TYPE_CHECKING:
    from kas.redis import RedisClient

__all__ = ["CredentialsPart"]


class CredentialsPart(Part):
    """
    Authenticators that the configuration selects, as a part of kas.

    :param registry: the connected agents, whose tunnels end with their credentials.
    :param redis: the Redis client of the directory; None if kas runs alone.
    :param in_use: returns the ids of users' credentials with open connections.
    """

    name = "credentials"

    def __init__(
        self,
        configuration: KasConfiguration,
        modules: Sequence[Prepared],
        state: StateDirectory,
        runtime: Runtime,
        registry: Registry,
        stores: Stores,
        redis: RedisClient | None,
        in_use: Callable[[], set[str]],
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        reactor, settings = runtime.reactor, configuration.gitlab
        self.identity = identity = FileAuthenticator(
            state.file("identity.json"),
            runtime,
            elsewhere=settings is not None,
        )
        self.authenticators = authenticators = Authenticators(reactor)
        authenticators.add(identity)
        authenticators.run(identity)
        #: Function that returns an agent that may connect, by its id.
        self.find_agent: Callable[[str], KnownAgent | None] = identity.agent
        #: GitLab is a separate part, because it needs the stores.
        self.gitlab: GitLabPart | NoGitLab = NoGitLab(reactor)
        if settings is not None:
            self.find_agent = OfGitLab
            self.gitlab = GitLabPart(
                settings,
                configuration,
                modules,
                runtime,
                registry.credential_id,
                stores,
                redis,
            )
            self.gitlab.serve(authenticators, self._of_agents, in_use)
        #: Providers that sign users in with a browser.
        self.sign_in_providers: tuple[ISignInProvider, ...] = ()
        if configuration.oidc is not None:
            browser = serve_sign_in(
                configuration.oidc, runtime, identity, authenticators, in_use
            )
            self.sign_in_providers = (browser,)

    def _of_agents(self) -> set[str]:
        return {one.credential_id for one in self._registry.tunnels()}

    def start(self) -> None:
        """Start the repeated checks of credentials."""
        self.authenticators.start(self.revoked)

    def stop(self) -> None:
        """Stop the repeated checks."""
        self.authenticators.stop()

    def revoked(self, credential_id: str) -> None:
        """End all connections of a credential."""
        self._registry.revoke(credential_id)
        self._runtime.bus.publish(CredentialRevoked(credential_id))
