"""
Sessions to other kas, which are opened when they are first needed, and then kept open.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import (
    IDelayedCall,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.fleet.credentials import SessionCredentials
from kas.fleet.tokens import PeerToken
from kas.state.process_socket import worker_at
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.session.keepalive import Timing
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.session.roles import KAS
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.for_each import for_each
from tunnel.wire.limits import DEFAULT_LIMITS
from tunnel.wire.session import Session

__all__ = ["PEER_TIMING", "Peer", "Peers"]

#: Keepalive between kas.  The periods are short, because kas are close to each other,
#: and a dead kas must be detected before its clients give up.
PEER_TIMING = Timing(ping_interval=4.0, dead_after=8.0)

#: Limits of a session between kas, which carries all requests of one kas' clients to
#: the other's agents.  Kas trust each other, and the behavior of one agent or client
#: must not end the shared session: therefore the budgets of small frames are never
#: exhausted. Windows are small, because the network path is short.
PEER_LIMITS = attrs.evolve(
    DEFAULT_LIMITS,
    max_streams=100_000,
    max_window=1 << 20,
    session_bytes=512 << 20,
    queued_bytes=512 << 20,
    queued_high=256 << 20,
    resets_per_interval=10_000_000,
    small_frames_per_interval=50_000_000,
    max_queued_control=1_000_000,
)

#: Maximum seconds for TCP and TLS: a request waits for the session, and another kas may
#: be available.
DIAL_TIMEOUT = 3.0

#: Seconds before a peer that could not be reached is dialled again: first and maximum
#: pause.
RETRY_FIRST, RETRY_MOST = 0.4, 5.0

#: Maximum number of remembered peers; far more than the number of kas that operators
#: run.  The addresses come from the store, which is trusted, but may contain invalid
#: data.
MAX_PEERS = 1_000


@attrs.define(eq=False)
class Peer(TunnelOwner):
    """Another kas, at one address."""

    url: str
    _peers: Peers
    #: Current session; None without a session.
    tunnel: TunnelProtocol | None = None
    _dialling: Deferred[Any] | None = None
    _greeting: TunnelProtocol | None = None
    #: Token of the greeting.
    _token: PeerToken | None = None
    #: Callbacks that wait for the session.
    _waiting: dict[object, Callable[[], None]] = attrs.Factory(dict)
    #: Timer of the next attempt, while a request waits.
    _later: IDelayedCall | None = None
    _failures: int = 0
    _backoff: Backoff = attrs.field(init=False)
    _retry_at: float = 0.0
    #: Reason why the last attempt failed; empty if it succeeded.
    problem: str = ""
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._backoff = Backoff(self._peers.runtime.random, RETRY_FIRST, RETRY_MOST)

    @property
    def _name(self) -> str:
        """Name for the log: the number of a worker of this kas, or the address."""
        name = worker_at(self.url)
        return f"kas at {name}" if name == self.url else name

    @property
    def alive(self) -> bool:
        """Whether the peer accepts streams and was heard from recently."""
        return self.tunnel is not None and self.tunnel.alive

    @property
    def worth_trying(self) -> bool:
        """
        Whether the session is alive; without a session, whether the pause after the
        last failed attempt is over.
        """
        return self.alive or (
            self.tunnel is None
            and self._peers.runtime.reactor.seconds() >= self._retry_at
        )

    @property
    def _busy(self) -> bool:
        """Whether a session exists or is being opened."""
        steps = (self.tunnel, self._dialling, self._greeting, self._later)
        return any(one is not None for one in steps)

    @property
    def dialling(self) -> bool:
        """Whether an attempt to connect is in progress."""
        return self._dialling is not None or self._greeting is not None

    def prepare(self) -> None:
        """Dial in advance for later callers, unless a dial is in progress."""
        if not self._busy and self.worth_trying:
            self._dial()

    def connect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """
        Call *callback* once, when the session is open or could not be opened; return a
        function that cancels this.

        After a recent failure, the next attempt begins when the backoff has passed.  If
        a session exists but its peer is silent, the next attempt begins when that
        session ends.
        """
        wish = object()
        self._waiting[wish] = callback
        self._pursue()
        return lambda: self._forget(wish)

    def _forget(self, wish: object) -> None:
        self._waiting.pop(wish, None)

    def _pursue(self) -> None:
        """Dial if a request waits and no attempt is in progress."""
        if not self._waiting or self._busy:
            return
        pause = self._retry_at - self._peers.runtime.reactor.seconds()
        if pause > 0:
            self._later = self._peers.runtime.reactor.callLater(
                pause, self._after_pause
            )
        else:
            self._dial()

    def _after_pause(self) -> None:
        self._later = None
        self._pursue()

    def _dial(self) -> None:
        factory = Factory.forProtocol(self._make_tunnel)
        factory.noisy = False
        try:
            dialling = self._peers.endpoint(self.url).connect(factory)
        except Exception as error:
            self._failed(Failure(error))
            return
        dialling.addTimeout(DIAL_TIMEOUT, self._peers.runtime.reactor)
        self._dialling = dialling
        dialling.addCallbacks(self._connected, self._failed)

    def _make_tunnel(self) -> TunnelProtocol:
        peers = self._peers
        return TunnelProtocol(
            Session(dialler=True, limits=PEER_LIMITS),
            self,
            clock=peers.runtime.reactor,
            flusher=peers.runtime.flusher,
            keepalive=peers.runtime.keepalive,
            timing=PEER_TIMING,
        )

    def _connected(self, tunnel: TunnelProtocol) -> None:
        self._dialling = None
        self._greeting = tunnel
        peers = self._peers
        self._token = token = peers.sign(self.url)
        tunnel.hello(
            pb.Hello(
                role=KAS,
                credential=token.text,
                instance_id=peers.runtime.instance_id,
                generation=1,
            )
        )

    def _failed(self, failure: Failure) -> None:
        self._dialling = None
        if failure.check(TimeoutError):
            self._down(f"cannot be reached: no response within {DIAL_TIMEOUT:g} s")
        elif not failure.check(CancelledError):
            text = failure.getErrorMessage() or type(failure.value).__name__
            self._down(f"cannot be reached: {text}")

    def _down(self, why: str) -> None:
        peers = self._peers
        peers.failures += 1
        self.problem = why
        self._failures += 1
        pause = self._backoff.pause()
        self._retry_at = peers.runtime.reactor.seconds() + pause
        if self._failures == 1:
            # If other kas stop at the same time, as workers do, a lost session is
            # normal.
            say = self._log.info if peers.leaving else self._log.warn
            say("{kas} {why}", kas=self._name, url=self.url, why=why)
        # Notify in the next turn, after `connect` has returned: if an attempt fails at
        # once, the caller has not stored the function that cancels yet.
        peers.runtime.reactor.callLater(0, self._tell)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, {}
        # An exception from one callback must not affect the session.
        for_each(
            waiting.values(),
            lambda callback: callback(),
            "a request to {kas}",
            kas=self._name,
        )

    def stop(self) -> None:
        """Close the session, and do not reconnect."""
        self._waiting.clear()
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._dialling is not None:
            self._dialling.cancel()
        for tunnel in (self._greeting, self.tunnel):
            if tunnel is not None:
                tunnel.end(ErrorCode.SHUTDOWN, "kas is shutting down")

    # Methods of tunnel.session.protocol.TunnelOwner

    def welcome_received(self, tunnel: TunnelProtocol, welcome: pb.Welcome) -> None:
        self._greeting = None
        token, self._token = self._token, None
        if token is None or not hmac.compare_digest(welcome.proof, token.proof):
            # Its address may have been written by a program without the secret.
            text = "did not prove that it has the secret of private_api"
            self._down(f"is not used: it {text}; is it an older version of kas?")
            tunnel.end(ErrorCode.UNAUTHENTICATED, f"the dialled kas {text}")
            return
        self.tunnel = tunnel
        self._peers.credentials.opened(tunnel, token, by_us=True)
        if self._failures > 1:
            self._log.info("{kas} is connected again", kas=self._name, url=self.url)
        self._failures = 0
        self._backoff.reset()
        self.problem = ""
        self._tell()

    def go_away_received(self, tunnel: TunnelProtocol, go_away: pb.GoAway) -> None:
        """
        Use a new session for new streams, because the peer is stopping; running streams
        may finish.
        """
        if self.tunnel is tunnel:
            self.tunnel = None
            self._pursue()

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> None:
        self._peers.credentials.closed(tunnel)
        if tunnel is self.tunnel:
            self.tunnel = None
            self._log.info(
                "{kas}: {reason}", kas=self._name, url=self.url, reason=reason
            )
            self._pursue()
        elif tunnel is self._greeting:
            self._greeting = None
            self._down(f"refused this kas: {reason}")


@attrs.define(eq=False)
class Peers:
    """
    Table of the other kas that this kas has connected to, by address.

    :ivar endpoint: returns the endpoint for a URL.
    :ivar sign: returns a new token for the kas at a URL.
    """

    endpoint: Callable[[str], IStreamClientEndpoint]
    sign: Callable[[str], PeerToken]
    runtime: Runtime
    #: Record of what has verified each session.
    credentials: SessionCredentials = attrs.Factory(SessionCredentials)
    #: Number of failed attempts to reach a kas since the start.
    failures: int = 0
    #: Whether this kas is stopping.
    leaving: bool = False
    _peers: dict[str, Peer] = attrs.Factory(dict)

    def at(self, url: str) -> Peer:
        """Return the peer at an address."""
        peer = self._peers.get(url)
        if peer is None:
            if len(self._peers) >= MAX_PEERS:
                self._forget_one()
            peer = self._peers[url] = Peer(url, self)
        return peer

    def _forget_one(self) -> None:
        idle = (url for url, peer in self._peers.items() if peer.tunnel is None)
        url = next(idle, None) or next(iter(self._peers))
        self._peers.pop(url).stop()

    @property
    def connected(self) -> int:
        """Number of open sessions."""
        return sum(peer.tunnel is not None for peer in self._peers.values())

    def stop(self) -> None:
        """Close all sessions."""
        for peer in self._peers.values():
            peer.stop()
