"""
Extra tunnels of a busy agent, to kas that receive many requests for it.

A client may reach any of several kas, or any worker of one kas, but only one of them
has the agent's connection: the others relay their requests to it.  If one of the others
has many requests, it gets a separate tunnel to the agent.  The tunnel is optional: when
it is lost, requests are relayed again.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from agentk.dialer import CONNECT_TIMEOUT, Dialer
from tunnel.api import IStreamReceiver
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.session.roles import EXTRA_AGENT
from tunnel.session.stream import StreamTransport
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.repeated import Repeated

__all__ = ["ExtraTunnels"]

#: Seconds between two checks of the number of relayed requests.
INTERVAL = 5.0

#: Minimum number of requests that one kas relays in an interval before it gets a
#: separate tunnel: a handshake costs a kas as much as relaying thirty requests.
BUSY = 50

#: Seconds during which agentk tries to reach a busy kas.  An attempt reaches that kas
#: only by chance, because the listener, or the load balancer in front of it, chooses
#: the kas.
WANTED = 60.0

#: Seconds without a request after which an extra tunnel closes.
IDLE = 60.0

#: Maximum number of seconds for running requests when an extra tunnel is not needed any
#: more; kas closes the tunnel as soon as these requests have ended.
LEAVING = 3600.0

#: First and longest pause before another attempt, in seconds.  Each attempt that
#: reaches another kas costs that kas a handshake, and a load balancer may never lead to
#: the wanted kas.
RETRY_FIRST, RETRY_MOST = 0.1, 60.0

#: Maximum number of concurrent extra tunnels: each takes 20 KiB in kas, and the same in
#: agentk.
MAX_TUNNELS = 16

#: Maximum number of kas whose relayed requests are counted; requests of further kas are
#: ignored.
MAX_COUNTED = 64


@attrs.define(eq=False)
class ExtraTunnels:
    """
    A manager of extra tunnels, which opens useful tunnels, one at a time, and closes
    unused tunnels.

    :param dialer: the dialer with the main connection.
    """

    dialer: Dialer
    runtime: Runtime
    #: Open extra tunnels, by the id of the kas.
    tunnels: dict[bytes, ExtraTunnel] = attrs.field(init=False, factory=dict)
    #: Number of relayed requests in this interval, by the id of the kas that sent them.
    _relayed: Counter[bytes] = attrs.field(init=False, factory=Counter)
    #: Kas that relayed many requests, each with the time of the last check that found
    #: this.
    _wanted: dict[bytes, float] = attrs.field(init=False, factory=dict)
    _backoff: Backoff = attrs.field(init=False)
    _loop: Repeated = attrs.field(init=False)
    #: Current step, at most one: a dial, a greeting, or the pause before the next dial.
    _dialling: Deferred[Any] | None = attrs.field(init=False, default=None)
    _greeting: ExtraTunnel | None = attrs.field(init=False, default=None)
    _pause: IDelayedCall | None = attrs.field(init=False, default=None)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._backoff = Backoff(self.runtime.random, RETRY_FIRST, RETRY_MOST)
        self._loop = Repeated(
            self.runtime.reactor, "opening further tunnels", self._look
        )
        self.dialer.on_relayed = self._was_relayed

    def start(self) -> None:
        """Start the checks."""
        self._loop.start(INTERVAL)

    def stop(self) -> None:
        """Open no more extra tunnels; open ones end with the dialer."""
        self._loop.stop()
        self._cancel_pause()
        if self._dialling is not None:
            self._dialling.cancel()

    def _was_relayed(self, kas_id: bytes) -> None:
        if kas_id in self._relayed or len(self._relayed) < MAX_COUNTED:
            self._relayed[kas_id] += 1

    def _look(self) -> None:
        now = self.runtime.reactor.seconds()
        for kas_id, count in self._relayed.items():
            if count >= BUSY and kas_id not in self.tunnels:
                self._wanted[kas_id] = now
        self._relayed.clear()
        for kas_id, busy in tuple(self._wanted.items()):
            if now - busy > WANTED:
                del self._wanted[kas_id]
        for extra in tuple(self.tunnels.values()):
            if extra.kas_id == self.dialer.kas_id:
                extra.leave("agentk is connected to this kas")
            elif extra.idle(now) > IDLE:
                extra.leave("this tunnel is not needed any more")
        if not self._wanted:
            self._backoff.reset()
            self._cancel_pause()
        if self._pause is None:
            self._dial()

    def _cancel_pause(self) -> None:
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.cancel()

    # One attempt to connect.

    def _dial(self) -> None:
        self._pause = None
        # This kas has the main connection now, and would refuse an extra tunnel.
        self._wanted.pop(self.dialer.kas_id, None)
        if (
            not self._wanted
            or len(self.tunnels) >= MAX_TUNNELS
            or not self.dialer.ready
            or not self._loop.running
            or self._dialling is not None
            or self._greeting is not None
        ):
            return
        extra = ExtraTunnel(self)
        factory = Factory.forProtocol(partial(self.dialer.make_tunnel, extra))
        factory.noisy = False
        try:
            dialling = self.dialer.endpoint().connect(factory)
        except Exception as error:
            self._missed(str(error))
            return
        dialling.addTimeout(CONNECT_TIMEOUT, self.runtime.reactor)
        self._dialling = dialling
        dialling.addCallbacks(
            partial(self._connected, extra),
            lambda failure: self._missed(failure.getErrorMessage()),
        )

    def _connected(self, extra: ExtraTunnel, tunnel: TunnelProtocol) -> None:
        self._dialling = None
        if tunnel.session.ended is not None:
            self._missed(tunnel.session.ended.message)
            return
        extra.tunnel, self._greeting = tunnel, extra
        self.dialer.greet(tunnel, EXTRA_AGENT)

    def _missed(self, why: str) -> None:
        """Record a failed attempt; the next one may reach the wanted kas."""
        self._dialling = self._greeting = None
        if not self._loop.running:
            return
        pause = self._backoff.pause()
        self._log.debug(
            "no extra tunnel: {why}; next attempt in {pause:.1f} s",
            why=why,
            pause=pause,
        )
        self._pause = self.runtime.reactor.callLater(pause, self._dial)

    # Callbacks of tunnels.

    def welcomed(self, extra: ExtraTunnel) -> None:
        """
        Keep a tunnel that a kas accepted, even if it is not the wanted kas.

        The tunnel stays open like any idle tunnel, so that the next attempts do not
        reach the same kas.
        """
        self._greeting = None
        self.tunnels[extra.kas_id] = extra
        self._log.info("an extra tunnel to kas {kas_id}", kas_id=extra.kas_id.hex())
        if self._wanted.pop(extra.kas_id, None) is None:
            self._missed("another kas accepted it")
            return
        self._backoff.reset()
        self._dial()

    def ended(self, extra: ExtraTunnel, reason: str) -> None:
        """Forget a tunnel that accepts no more requests, or is gone."""
        if self.tunnels.get(extra.kas_id) is extra:
            del self.tunnels[extra.kas_id]
            self._log.info(
                "the extra tunnel to kas {kas_id} ended: {reason}",
                kas_id=extra.kas_id.hex(),
                reason=reason,
            )
        elif self._greeting is extra:
            self._missed(reason)


class ExtraTunnel(TunnelOwner):
    """One extra tunnel, whose requests are passed to the dialer."""

    def __init__(self, tunnels: ExtraTunnels) -> None:
        self._tunnels = tunnels
        self._dialer = tunnels.dialer
        self.tunnel: TunnelProtocol | None = None
        #: Id of the kas at the other end; empty before WELCOME.
        self.kas_id = b""
        #: Number of streams so far.
        self._opened = 0
        #: Number of streams when the tunnel was last seen in use.
        self._seen = 0
        self._used: float = tunnels.runtime.reactor.seconds()

    def idle(self, now: float) -> float:
        """Return the seconds since the tunnel was last seen in use."""
        assert self.tunnel is not None
        if self.tunnel.load or self._opened != self._seen:
            self._seen, self._used = self._opened, now
        return now - self._used

    def leave(self, why: str) -> None:
        """
        Ask kas to send no more requests through this tunnel.

        kas closes the tunnel when the running requests have ended.
        """
        assert self.tunnel is not None
        self._tunnels.ended(self, why)
        self.tunnel.go_away(
            pb.GoAway(
                code=ErrorCode.SHUTDOWN,
                message=why,
                deadline_ms=round(LEAVING * 1000),
            )
        )

    # Methods of tunnel.session.protocol.TunnelOwner

    def welcome_received(self, tunnel: TunnelProtocol, welcome: pb.Welcome) -> None:
        self.kas_id = welcome.kas_id
        self._tunnels.welcomed(self)

    def stream_opened(self, stream: StreamTransport, open_: pb.Open) -> IStreamReceiver:
        self._opened += 1
        return self._dialer.stream_opened(stream, open_)

    def stream_resumed(
        self, stream: StreamTransport, resume: pb.Resume
    ) -> IStreamReceiver:
        return self._dialer.stream_resumed(stream, resume)

    def go_away_received(self, tunnel: TunnelProtocol, go_away: pb.GoAway) -> None:
        """
        Leave a kas that is stopping: another kas has our main connection, and relays
        requests.
        """
        if go_away.deadline_ms:
            self.leave(go_away.message[:200])

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> None:
        self._dialer.forget(tunnel)
        self._tunnels.ended(self, str(reason))
