"""
One sweep for all connections: pings, dead peers, late greetings, new budgets.

A sweep checks the connections with activity since the last sweep, and those for which
something is due; so it checks an idle agent once for each of its pings.

`Keepalive.ask` also pings a single connection that may be dead.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall

from tunnel.pb import tunnel_pb2 as pb
from tunnel.toolkit.for_each import for_each

#: Seconds between two sweeps.  A timer for each of 5,000 agents costs more.
SWEEP: Final = 2.0

#: Sweeps that a connection is left alone at most: one more than fit into the longest
#: silence that kas allows an agent before it asks by itself.
LONGEST_REST: Final = 16

#: Seconds of silence after a request at which the other side is doubted.  It was asked
#: one sweep before, so a path is bad that took longer; requests have a better one, or
#: wait for this one to speak again.
DOUBTED: Final = 4.0

#: Seconds between two looks at a connection that was asked by `Keepalive.ask`: as long
#: as the round trip of a path around the world.
LOOK: Final = 0.3

#: Checks after which a silent connection is in doubt: two such round trips.  As with
#: sweeps, a process that was paused reads received bytes before it counts on.
LOOKS_TO_DOUBT: Final = 2

#: Looks after which it is closed, five seconds: longer than networks need to find
#: another way, and than an honest process is without its processor.
LOOKS_TO_END: Final = 17

#: Seconds after which an unanswered greeting ends the connection: a stranger may hold
#: a socket and a TLS session that long, not longer.
GREETING_TIMEOUT: Final = 10.0

#: Seconds after which budgets of control frames are renewed, and that in sweeps.
BUDGET_INTERVAL: Final = 10.0
_RENEWAL: Final = math.ceil(BUDGET_INTERVAL / SWEEP)


@attrs.frozen
class Timing:
    """How a connection is kept alive; kas decides and sends it with WELCOME."""

    #: Silence after which a side asks whether the other is there.  Below the 30 s that
    #: the most impatient load balancers allow an idle connection.
    ping_interval: float = 14.0
    #: Silence after which the other side is gone: two pings went unanswered.
    dead_after: float = 28.0
    #: A new attempt waits at least and at most so long (full jitter between them).
    reconnect_min: float = 0.5
    reconnect_max: float = 30.0
    #: How long a resumable stream may be without a path.
    resume_grace: float = 0.0

    def message(self) -> pb.Timing:
        """For WELCOME."""
        return pb.Timing(
            ping_interval_ms=round(self.ping_interval * 1000),
            dead_after_ms=round(self.dead_after * 1000),
            reconnect_min_ms=round(self.reconnect_min * 1000),
            reconnect_max_ms=round(self.reconnect_max * 1000),
            resume_grace_ms=round(self.resume_grace * 1000),
        )

    @classmethod
    def from_message(cls, message: pb.Timing) -> Timing:
        """From WELCOME; what a server leaves out, or sets absurdly, is our default."""
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
    """From milliseconds that were sent; 0 is none."""
    return max(sent / 1000, least) if sent else default


class Watched(Protocol):
    """A connection as the sweep sees it."""

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
    :ivar doubt: seconds since the peer was pinged because a request found it silent, in
        whole sweeps; only PONG ends the doubt.
    :ivar answered: bytes arrived since `question_asked`.
    :ivar expecting: a stream was opened, and no byte has arrived since: the peer has a
        reason to send something.
    :ivar alive: bytes arrived recently, and in time if the peer was pinged.
    :ivar bed: the connections that `Keepalive` skips as long as this one, which has to
        be woken before anything happens to it; None if it is awake.
    :ivar looked: number of the last sweep that checked it.
    """

    __slots__ = (
        "_dialler",
        "_heard",
        "alive",
        "answered",
        "bed",
        "doubt",
        "expecting",
        "looked",
        "silence",
        "timing",
    )

    def __init__(self, timing: Timing, *, dialler: bool) -> None:
        self.silence = 0.0
        self.doubt = 0.0
        self.answered = True
        self._dialler = dialler
        #: Bytes came since the last sweep.
        self._heard = False
        self.expecting = False
        self.bed: set[Watched] | None = None
        self.looked = 0
        self.set_timing(timing)

    def set_timing(self, timing: Timing) -> None:
        """Use other intervals from now on."""
        self.timing = timing
        self._judge()

    @property
    def _patience(self) -> float:
        # Both sides would ask in the same moment; the side that dialled asks first,
        # and hearing it is all that the other needs.
        return self.timing.ping_interval * (1.0 if self._dialler else 1.25)

    @property
    def heard_lately(self) -> bool:
        """Within one ping interval and a half."""
        return self.silence <= self.timing.ping_interval * 1.5

    # Activity on the connection.

    def bytes_came(self) -> None:
        """Of any kind."""
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
        """From here on it takes PONG, and the sweep counts."""
        if self.doubt < DOUBTED:
            self.doubt = DOUBTED
            self._judge()
            connection.peer_is_doubted()

    @property
    def rest(self) -> int:
        """Return after how many sweeps a check is due, if nothing happens before."""
        if self.expecting or self.doubt:
            return 1
        left = min(self._patience, self.timing.dead_after) - self.silence
        return math.ceil(left / SWEEP)

    def swept(self, connection: Watched, sweeps: int = 1) -> None:
        """
        `SWEEP` seconds passed: do with *connection* what follows from that.

        :param sweeps: how many there were since the last that looked at it.
        """
        if self._heard and connection.greeted:
            self._heard = False
            self.silence = 0.0
            self._judge()
            if self.doubt:
                # It speaks, and does not hear us.
                self._doubt_longer(connection)
                if self.doubt >= self.timing.dead_after:
                    connection.peer_is_dead()
            return
        before = self.silence
        self.silence += SWEEP * sweeps
        self._judge()
        asks = before < self._patience <= self.silence
        if self.expecting:
            # A request must not wait for what is dead until it is given up: ask now.
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
        # Each request reads the result; silence and doubt change in sweeps.
        self.alive = self.doubt < DOUBTED and self.heard_lately

    def _doubt_longer(self, connection: Watched) -> None:
        before = self.doubt
        self.doubt += SWEEP
        self._judge()
        if before < DOUBTED <= self.doubt:
            connection.peer_is_doubted()


class Keepalive:
    """
    Sweeper of all connections, every `SWEEP` seconds.

    A connection for which nothing is due until a certain sweep rests until then, unless
    activity wakes it.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._awake: set[Watched] = set()
        #: Resting connections, by the sweep that checks them next, modulo the longest
        #: rest.
        self._resting: list[set[Watched]] = [set() for _ in range(LONGEST_REST)]
        self._questions: dict[Watched, _Question] = {}
        self._sweeps = 0
        self._loop = LoopingCall(self.sweep)
        self._loop.clock = clock

    def watch(self, connection: Watched) -> None:
        """Look at *connection* from now on."""
        connection.liveness.looked = self._sweeps
        self._awake.add(connection)
        if not self._loop.running:
            self._loop.start(SWEEP, now=False)

    def forget(self, connection: Watched) -> None:
        """Stop; the sweep itself stops with the last connection."""
        self._among(connection).discard(connection)
        question = self._questions.pop(connection, None)
        if question is not None:
            question.call.cancel()
        if self._loop.running and not self._awake and not any(self._resting):
            self._loop.stop()

    def wake(self, connection: Watched) -> None:
        """Have the next sweep check a resting connection, because it has activity."""
        liveness = connection.liveness
        self._among(connection).discard(connection)
        self._awake.add(connection)
        liveness.bed = None
        if self._sweeps // _RENEWAL > liveness.looked // _RENEWAL:
            connection.renew_budget()

    def _among(self, connection: Watched) -> set[Watched]:
        bed = connection.liveness.bed
        return self._awake if bed is None else bed

    def ask(self, connection: Watched) -> None:
        """
        Ping *connection* now, because a caller has reason to think that it is dead.

        All callers share one ping at a time, and each ping takes as long as a doubt
        does: a living connection gets at most two pings a second.
        """
        question = self._questions.get(connection)
        if question is not None:
            question.again = True
        elif connection in self._among(connection):
            if connection.liveness.bed is not None:
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
        """One look at all that are awake."""
        self._sweeps += 1
        due = self._bed(0)
        for connection in due:
            connection.liveness.bed = None
        self._awake |= due
        due.clear()
        for_each(tuple(self._awake), self._look, "the sweep of a connection")

    def _bed(self, rest: int) -> set[Watched]:
        return self._resting[(self._sweeps + rest) % LONGEST_REST]

    def _look(self, connection: Watched) -> None:
        if self._sweeps % _RENEWAL == 0:
            connection.renew_budget()
        liveness = connection.liveness
        passed = self._sweeps - liveness.looked
        liveness.looked = self._sweeps
        liveness.swept(connection, passed)
        rest = min(liveness.rest, LONGEST_REST - 1)
        # It may have been its end.
        if rest > 1 and connection.settled and connection in self._awake:
            self._awake.remove(connection)
            liveness.bed = self._bed(rest)
            liveness.bed.add(connection)


@attrs.define(eq=False)
class _Question:
    """Whether one connection lives."""

    call: IDelayedCall
    looks: int = 0
    #: It was asked once more meanwhile.
    again: bool = False
