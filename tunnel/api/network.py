"""Listeners of a module, and its requests to other servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from zope.interface import Interface

from tunnel.config import Listen

if TYPE_CHECKING:
    # agentk serves no pages, and need not import twisted.web.
    from twisted.web.iweb import IAgent

__all__ = ["INetwork"]


class INetwork(Interface):
    """Listeners and HTTP clients: `IServerModuleApi.network`."""

    def listen(
        endpoint: Listen | str, factory: IProtocolFactory, path: str = ""
    ) -> Deferred[IListeningPort]:
        """
        Listen until the module stops.

        :param endpoint: a `Listen` section of the module's configuration, or a Twisted
            endpoint string.
        :param path: prefix of every path at this listener; `kasctl` shows it to
            operators.
        """

    def http_agent(
        setting: str, ca_certificate_file: Path | None = None, *, connections: int = 2
    ) -> IAgent:
        """
        Return an HTTP client for another server; it does not follow redirects.

        The client keeps connections open, and uses the proxy in the environment of kas.

        :param setting: the key in the configuration, for the log.
        :param ca_certificate_file: PEM certificates of CAs to trust in addition to the
            system's.  It is read again after a change.
        :param connections: maximum number of open connections that are kept for reuse.
        :raises tunnel.errors.ConfigurationError: the file or the proxy cannot be used.
        """
