"""The listening side of tunnels."""

from __future__ import annotations

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Factory

from tunnel.session.keepalive import Keepalive, Timing
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.toolkit.log_budget import LogBudget
from tunnel.util.flusher import Flusher
from tunnel.wire.limits import DEFAULT_LIMITS, Limits
from tunnel.wire.session import Session

__all__ = ["TunnelFactory"]


class TunnelFactory(Factory):
    """
    Factory that creates the tunnel of each connection.

    :param owner: the owner of every tunnel.
    :param timing: the keepalive timing before the greeting; the owner chooses the
        timing that it announces to the other side.
    """

    noisy = False

    def __init__(
        self,
        owner: TunnelOwner,
        *,
        timing: Timing,
        clock: IReactorTime,
        flusher: Flusher,
        keepalive: Keepalive,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._owner = owner
        self._timing = timing
        self._clock = clock
        self._flusher = flusher
        self._keepalive = keepalive
        self._limits = limits
        self._strangers = LogBudget()

    def buildProtocol(self, addr: IAddress | None) -> TunnelProtocol:
        """Return the tunnel of a new connection."""
        tunnel = TunnelProtocol(
            Session(dialler=False, limits=self._limits),
            self._owner,
            clock=self._clock,
            flusher=self._flusher,
            keepalive=self._keepalive,
            timing=self._timing,
        )
        tunnel.log_budget = self._strangers
        return tunnel
