"""
One sweep of all connections, for pings, dead peers, late greetings and new budgets.

A sweep checks the connections with activity since the last sweep, and the connections
with a due check.  So a sweep checks an idle agent only once for each ping.

`Keepalive.ask` also pings a single connection that may be dead.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tunnel.pb import tunnel_pb2 as pb
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.repeated import Repeated

#: Seconds between two sweeps.  A timer for each of 5,000 agents would cost more.
SWEEP: Final = 2.0

#: Maximum number of sweeps that skip a connection: one more than fit into the longest
#: silence that kas allows an agent before it sends a ping.
LONGEST_REST: Final = 16

#: Seconds of silence after a request at which the peer is in doubt.  Because the peer
#: was pinged one sweep earlier, a path without a response is bad; requests use another
#: path, or wait until this path responds.
DOUBTED: Final = 4.0

#: Seconds between two checks after `Keepalive.ask`: the round trip of a path around the
#: world.
LOOK: Final = 0.3

#: Number of checks after which a silent connection is in doubt: two round trips around
#: the world.  As with sweeps, a process that was paused reads received bytes before it
#: continues to count.
LOOKS_TO_DOUBT: Final = 2

#: Number of checks, five seconds in total, after which a silent connection is closed.
#: Networks find another route in less time, and a healthy process gets a processor in
#: less time.
LOOKS_TO_END: Final = 17

#: Seconds after which a connection without a greeting is closed: this limits how long a
#: stranger can hold a socket and a TLS session.
GREETING_TIMEOUT: Final = 10.0

#: Seconds between renewals of the budgets for control frames, and the same in sweeps.
BUDGET_INTERVAL: Final = 10.0
_RENEWAL: Final = math.ceil(BUDGET_INTERVAL / SWEEP)


@attrs.frozen
class Timing:
    """
    The timing of a connection's keepalive; kas chooses it and sends it with WELCOME.
    """

    #: Seconds of silence after which a side sends a PING: less than the 30 s after
    #: which the strictest load balancers close an idle connection.
    ping_interval: float = 14.0
    #: Seconds of silence after which the other side is considered dead, because it has
    #: answered neither of two pings.
    dead_after: float = 28.0
    #: Minimum and maximum number of seconds before a new attempt to connect (with full
    #: jitter).
    reconnect_min: float = 0.5
    reconnect_max: float = 30.0
    #: Maximum number of seconds that a resumable stream waits for another path.
    resume_grace: float = 0.0

    def message(self) -> pb.Timing:
        """Return the timing as the message that WELCOME contains."""
        return pb.Timing(
            ping_interval_ms=round(self.ping_interval * 1000),
            dead_after_ms=round(self.dead_after * 1000),
            reconnect_min_ms=round(self.reconnect_min * 1000),
            reconnect_max_ms=round(self.reconnect_max * 1000),
            resume_grace_ms=round(self.resume_grace * 1000),
        )

    @classmethod
    def from_message(cls, message: pb.Timing) -> Timing:
        """
        Return the timing in a WELCOME; missing and absurd values are replaced by our
        defaults.
        """
        own = cls()
        ping = _seconds(message.ping_interval_ms, own.ping_interval, 1.0)
        return cls(
            ping_interval=ping,
            dead_after=_seconds(message.dead_after_ms, own.dead_after, ping + 1.0),
            reconnect_min=_seconds(message.reconnect_min_ms, own.reconnect_min, 0.01),
            reconnect_max=_seconds(message.reconnect_max_ms, own.reconnect_max, 0.1),
            resume_grace=message.resume_grace_ms / 1000,
        )


def _seconds(sent: int, default: float, least: float) -> float:
    """Convert milliseconds from a message; 0 means a missing value."""
    return max(sent / 1000, least) if sent else default


class Watched(Protocol):
    """The attributes and methods of a connection that the sweep uses."""

    liveness: Liveness

    @property
    def greeted(self) -> bool: ...
    @property
    def settled(self) -> bool: ...
    def send_ping(self) -> None: ...
    def peer_is_doubted(self) -> None: ...
    def peer_is_dead(self) -> None: ...
    def greeting_is_late(self) -> None: ...
    def renew_budget(self) -> None: ...


class Liveness:
    """
    State of the other side of one connection, judged by the bytes that arrive.

    Silence is counted in sweeps, not measured by a clock, so that a clock that jumps,
    or a process that was paused for a minute, ends no connection.

    :ivar silence: seconds without a byte, in whole sweeps.
    :ivar doubt: seconds since the peer was pinged because of a request while it was
        silent, in whole sweeps; only PONG ends the doubt.
    :ivar answered: whether bytes have arrived since `question_asked`.
    :ivar expecting: whether a stream was opened and no byte has arrived since, so that
        the peer has a reason to send something.
    :ivar alive: whether bytes arrived recently, and in time if the peer was pinged.
    :ivar wheel_slot: the set of resting connections, in `Keepalive`, that contains this
        connection; None if the connection is not resting.  A resting connection must be
        woken before it is used.
    :ivar looked: the number of the last sweep that checked the connection.
    """

    __slots__ = (
        "_dialler",
        "_heard",
        "alive",
        "answered",
        "doubt",
        "expecting",
        "looked",
        "silence",
        "timing",
        "wheel_slot",
    )

    def __init__(self, timing: Timing, *, dialler: bool) -> None:
        self.silence = 0.0
        self.doubt = 0.0
        self.answered = True
        self._dialler = dialler
        #: Whether bytes arrived since the last sweep.
        self._heard = False
        self.expecting = False
        self.wheel_slot: set[Watched] | None = None
        self.looked = 0
        self.set_timing(timing)

    def set_timing(self, timing: Timing) -> None:
        """Use other intervals from now on."""
        self.timing = timing
        self._judge()

    @property
    def _patience(self) -> float:
        # If the intervals were equal, both sides would ping at the same moment.  The
        # side that dialled pings first, and its PING suffices for the other side.
        return self.timing.ping_interval * (1.0 if self._dialler else 1.25)

    @property
    def heard_lately(self) -> bool:
        """Whether bytes arrived within one and a half ping intervals."""
        return self.silence <= self.timing.ping_interval * 1.5

    # Activity on the connection.

    def bytes_came(self) -> None:
        """Record that bytes of any kind arrived."""
        self._heard = self.answered = True
        if not self.doubt:
            self.expecting = False

    def pong_came(self) -> None:
        """Note a response to a PING."""
        self.expecting = False
        self.doubt = 0.0
        self._judge()

    def question_asked(self) -> None:
        """See `Keepalive.ask`."""
        self.answered = False

    def question_failed(self, connection: Watched) -> None:
        """
        Doubt the connection from now on: only a PONG ends the doubt, and the sweep
        counts its duration.
        """
        if self.doubt < DOUBTED:
            self.doubt = DOUBTED
            self._judge()
            connection.peer_is_doubted()

    @property
    def rest(self) -> int:
        """
        Return the number of sweeps until the next check, if nothing happens before.
        """
        if self.expecting or self.doubt:
            return 1
        left = min(self._patience, self.timing.dead_after) - self.silence
        return math.ceil(left / SWEEP)

    def swept(self, connection: Watched, sweeps: int = 1) -> None:
        """
        Handle a sweep: send a ping to *connection*, doubt it or end it, if due.

        :param sweeps: the number of sweeps since the last check of the connection.
        """
        if self._heard and connection.greeted:
            self._heard = False
            self.silence = 0.0
            self._judge()
            if self.doubt:
                # Bytes arrive from the peer, but it has not answered our PING.
                self._doubt_longer(connection)
                if self.doubt >= self.timing.dead_after:
                    connection.peer_is_dead()
            return
        before = self.silence
        self.silence += SWEEP * sweeps
        self._judge()
        asks = before < self._patience <= self.silence
        if self.expecting:
            # A request must not wait until a dead peer is detected, so it causes a ping
            # now.
            asks = asks or not self.doubt
            self._doubt_longer(connection)
        if not connection.greeted:
            if self.silence >= GREETING_TIMEOUT:
                connection.greeting_is_late()
        elif self.silence >= self.timing.dead_after:
            connection.peer_is_dead()
        elif asks:
            connection.send_ping()

    def _judge(self) -> None:
        # Every request reads the result, but silence and doubt change only in sweeps.
        self.alive = self.doubt < DOUBTED and self.heard_lately

    def _doubt_longer(self, connection: Watched) -> None:
        before = self.doubt
        self.doubt += SWEEP
        self._judge()
        if before < DOUBTED <= self.doubt:
            connection.peer_is_doubted()


class Keepalive:
    """
    A sweeper of all connections, which runs every `SWEEP` seconds.

    A connection without a due check rests until its next one, unless activity wakes it.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._awake: set[Watched] = set()
        #: Resting connections, by the sweep that checks them next, modulo the longest
        #: rest.
        self._resting: list[set[Watched]] = [set() for _ in range(LONGEST_REST)]
        self._questions: dict[Watched, _Question] = {}
        self._sweeps = 0
        self._loop = Repeated(clock, "checking connections", self.sweep)

    def watch(self, connection: Watched) -> None:
        """Include *connection* in the sweeps from now on."""
        connection.liveness.looked = self._sweeps
        self._awake.add(connection)
        if not self._loop.running:
            self._loop.start(SWEEP)

    def forget(self, connection: Watched) -> None:
        """Stop sweeping *connection*; the timer ends with the last connection."""
        self._among(connection).discard(connection)
        question = self._questions.pop(connection, None)
        if question is not None:
            question.call.cancel()
        if self._loop.running and not self._awake and not any(self._resting):
            self._loop.stop()

    def wake(self, connection: Watched) -> None:
        """
        Wake a resting connection, which has activity, so that the next sweep checks it.
        """
        liveness = connection.liveness
        self._among(connection).discard(connection)
        self._awake.add(connection)
        liveness.wheel_slot = None
        if self._sweeps // _RENEWAL > liveness.looked // _RENEWAL:
            connection.renew_budget()

    def _among(self, connection: Watched) -> set[Watched]:
        wheel_slot = connection.liveness.wheel_slot
        return self._awake if wheel_slot is None else wheel_slot

    def ask(self, connection: Watched) -> None:
        """
        Ping *connection* now, because a caller has a reason to believe that it is dead.

        All callers share one ping at a time, which lasts until the peer has responded
        or is in doubt: a healthy connection gets at most two pings a second.
        """
        question = self._questions.get(connection)
        if question is not None:
            question.again = True
        elif connection in self._among(connection):
            if connection.liveness.wheel_slot is not None:
                self.wake(connection)
            connection.liveness.question_asked()
            connection.send_ping()
            call = self._clock.callLater(LOOK, self._look_for_answer, connection)
            self._questions[connection] = _Question(call)

    def _look_for_answer(self, connection: Watched) -> None:
        question = self._questions[connection]
        question.looks += 1
        if question.looks >= LOOKS_TO_DOUBT and connection.liveness.answered:
            del self._questions[connection]
            if question.again:
                self.ask(connection)
            return
        question.call = self._clock.callLater(LOOK, self._look_for_answer, connection)
        if question.looks == LOOKS_TO_DOUBT:
            connection.liveness.question_failed(connection)
        elif question.looks == LOOKS_TO_END:
            connection.peer_is_dead()

    def sweep(self) -> None:
        """Check all connections that are not resting."""
        self._sweeps += 1
        due = self._slot(0)
        for connection in due:
            connection.liveness.wheel_slot = None
        self._awake |= due
        due.clear()
        for_each(tuple(self._awake), self._look, "sweeping a connection")

    def _slot(self, rest: int) -> set[Watched]:
        return self._resting[(self._sweeps + rest) % LONGEST_REST]

    def _look(self, connection: Watched) -> None:
        if self._sweeps % _RENEWAL == 0:
            connection.renew_budget()
        liveness = connection.liveness
        passed = self._sweeps - liveness.looked
        liveness.looked = self._sweeps
        liveness.swept(connection, passed)
        rest = min(liveness.rest, LONGEST_REST - 1)
        # The check may have ended the connection.
        if rest > 1 and connection.settled and connection in self._awake:
            self._awake.remove(connection)
            liveness.wheel_slot = self._slot(rest)
            liveness.wheel_slot.add(connection)


@attrs.define(eq=False)
class _Question:
    """A check whether one connection is alive."""

    call: IDelayedCall
    looks: int = 0
    #: Whether another check was requested in the meantime.
    again: bool = False
