"""
The secrets and CAs that verified the open sessions with other kas.

A session may last for months, so kas ends it soon after the operator has replaced the
secret or removed the CA that verified it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from twisted.logger import Logger

from kas.fleet.tokens import PeerToken
from tunnel.errors import ConfigurationError, ErrorCode
from tunnel.session.protocol import TunnelProtocol
from tunnel.toolkit.files import WatchedFile, file_version
from tunnel.transport.tls import client_context
from tunnel.transport.tlsio import TLSConnection

__all__ = ["CHECK_INTERVAL", "SessionCredentials", "watched_authorities"]

#: Seconds between two checks of the open sessions.
CHECK_INTERVAL = 2.0

#: Authorities as certificates in DER.
Authorities = Collection[bytes]


def watched_authorities(path: Path, reactor: Any) -> Callable[[], Authorities]:
    """Return a function that returns the CAs in a file, as they are now."""
    log = Logger()

    def read() -> Authorities:
        context = client_context(str(path), system_pool=False)
        return frozenset(context.get_ca_certs(binary_form=True))

    return WatchedFile(
        partial(file_version, path),
        read,
        lambda error: log.error(
            "the previous CAs of other kas stay in effect: {problem}",
            problem=str(error),
        ),
        unusable=ConfigurationError,
        seconds=reactor.seconds,
        interval=CHECK_INTERVAL / 2,
    ).get


@attrs.frozen
class _Evidence:
    """Data that verified a session when it began."""

    secret: bytes = attrs.field(repr=False)
    #: The CAs that the TLS handshake accepted.
    authorities: Authorities
    #: Function that returns the CAs that are accepted now; None if any are.
    accepted: Callable[[], Authorities] | None


@attrs.define(eq=False)
class SessionCredentials:
    """
    Table of the open sessions with other kas, each with the secret and the CAs that
    verified it.

    :param secrets: returns the secrets that are accepted now.
    :param dialling: returns the CAs of the kas that this kas has dialled; None if the
        setting names no CAs.
    :param dialled: returns the CAs of the kas that have dialled this kas; None if the
        setting names no CAs.
    """

    _secrets: Callable[[], Collection[bytes]] = lambda: ()
    _dialling: Callable[[], Authorities] | None = None
    _dialled: Callable[[], Authorities] | None = None
    _sessions: dict[TunnelProtocol, _Evidence] = attrs.field(factory=dict, init=False)
    _log = Logger()

    def opened(
        self, tunnel: TunnelProtocol, token: PeerToken, *, by_us: bool = False
    ) -> None:
        """
        Record a session that begins.

        :param by_us: whether this kas has dialled.
        """
        transport = tunnel.transport
        # Ask the connection and not the file, which may have been replaced since the
        # handshake.
        found = transport.authorities if isinstance(transport, TLSConnection) else ()
        accepted = self._dialling if by_us else self._dialled
        self._sessions[tunnel] = _Evidence(token.secret, found, accepted)

    def closed(self, tunnel: TunnelProtocol) -> None:
        """Forget a session that has ended, or that never began."""
        self._sessions.pop(tunnel, None)

    def check(self) -> None:
        """
        End the sessions whose secret, or one of whose CAs, is not accepted any more.

        The code lets resumable streams continue in a new session, if the other kas can
        open one.
        """
        if not self._sessions:
            return
        secrets = self._secrets()
        for tunnel, evidence in tuple(self._sessions.items()):
            if not any(hmac.compare_digest(evidence.secret, one) for one in secrets):
                self._end(tunnel, "the secret of private_api was replaced")
            elif evidence.accepted is not None and not set(
                evidence.authorities
            ).issubset(evidence.accepted()):
                self._end(tunnel, "a CA of the kas was removed")

    def _end(self, tunnel: TunnelProtocol, reason: str) -> None:
        self.closed(tunnel)
        self._log.warn(
            "the session with the kas at {peer} ends: {reason}",
            peer=tunnel.peer,
            reason=reason,
        )
        tunnel.end(ErrorCode.PATH_LOST, reason)
