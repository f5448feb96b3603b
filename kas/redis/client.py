"""Redis client whose commands fail at once during an outage."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

import attrs
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.redis.connection import (
    UNUSABLE,
    Command,
    Connection,
    RedisRefused,
    RedisTooLarge,
    RedisUnavailable,
    error_code,
    trap_redis_errors,
)
from kas.redis.dialling import Dialler
from tunnel.config import RedisConnection
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.timers import Timers

__all__ = ["Counters", "RedisClient", "RedisListener"]


#: Minimum and maximum seconds before another attempt to connect.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0

#: Seconds that a connection must last before the pauses between attempts are short
#: again.
STEADY = 30.0

#: Seconds between two PINGs on the connection for events, which is otherwise silent.
PING_INTERVAL = 10.0

#: Seconds between two queries to the sentinels for the master: without these queries, a
#: failover that does not close the connections would go unnoticed.
SENTINEL_INTERVAL = 10.0

#: Maximum number of different reasons that are logged during one outage: for example,
#: first that a connection was lost, and then that the password is wrong.
MAX_REASONS = 5

#: Maximum number of keys of too large responses that are reported after the connection
#: was closed; the keys of a further response are reported the next time.
MAX_TOO_LARGE = 1_000

#: Number of failed attempts to subscribe before a log line: while Redis restarts, the
#: other connection logs the reason.
EVENT_ATTEMPTS = 3


@attrs.define(eq=False)
class Counters:
    """Counters for metrics, which only increase."""

    commands: int = 0
    failures: int = 0
    #: Number of commands that failed at once, because the breaker was open, or because
    #: too many commands were waiting.
    refused: int = 0
    messages: int = 0


class RedisListener(Protocol):
    """
    Interface of a client's owner; the client never makes the same call twice in a row.
    """

    def redis_up(self) -> None:
        """Handle a connection on which commands can be sent."""

    def redis_down(self) -> None:
        """Handle an outage: commands fail at once from now on."""

    def redis_listening(self, on: bool) -> None:
        """
        Record whether messages arrive now; messages may have been lost at each change.
        """

    def redis_wrong_type(self, key: bytes) -> None:
        """
        Handle a value at *key* whose type does not fit the command, or which is too
        large.
        """

    def redis_message(self, data: bytes) -> None:
        """Handle a message on the channel."""


@attrs.define(eq=False)
class _Link:
    """One connection of the client, which is opened again whenever it ends."""

    clock: IReactorTime
    backoff: Backoff
    make: Callable[[], Coroutine[Any, Any, Connection]]
    up: Callable[[], None]
    down: Callable[[str], None]
    #: Connection that works; None without one.
    connection: Connection | None = None
    #: Number of consecutive failed attempts.
    failures: int = 0
    _keeping: Deferred[None] | None = None
    _stopped: bool = False
    _log = Logger()

    def start(self) -> None:
        self._keeping = Deferred.fromCoroutine(self._keep())
        self._keeping.addErrback(self._failed)

    def stop(self) -> None:
        self._stopped = True
        if self._keeping is not None:
            self._keeping.cancel()

    def _failed(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None:
            self._log.failure("keeping the connection to Redis failed", failure)

    async def _keep(self) -> None:
        while True:
            try:
                connection = await self.make()
            except RedisUnavailable as error:
                if self._stopped:
                    # A cancelled endpoint fails with an error of its own.
                    return
                reason = str(error)
            else:
                began = self.clock.seconds()
                self.connection = connection
                self.up()
                try:
                    reason = await connection.ended
                finally:
                    self.connection = None
                    connection.fail("kas is shutting down")
                if self.clock.seconds() - began >= STEADY:
                    self.failures = 0
                    self.backoff.reset()
            self.failures += 1
            self.down(reason)
            await deferLater(self.clock, self.backoff.pause())


@attrs.define(eq=False)
class RedisClient:
    """
    Client that sends commands in order, and can subscribe to one channel.

    Commands fail at once during a known outage: they never wait for Redis.

    :param random: returns a number between 0 and 1, for the jitter of the pauses.
    :param channel: name of the channel to subscribe to; empty for none.
    :param probe: commands that the client sends as one transaction on each new
        connection; the breaker closes only if Redis accepts all of them.  They should
        include a write, because a read-only Redis is useless.
    :param purpose: text for the log that begins with " for", such as " for the stores
        of modules"; empty for kas itself.
    :param while_down: text for the log about the effect of an outage.
    """

    _settings: RedisConnection
    _reactor: Any
    _random: Callable[[], float]
    _channel: str = ""
    _probe: Sequence[Command] = ()
    _purpose: str = ""
    _while_down: str = "kas continues with the data that it already has"
    counters: Counters = attrs.field(factory=Counters, init=False)
    #: Reason why the breaker is open; empty while it is closed.
    reason: str = attrs.field(default="not connected yet", init=False)
    #: Whether messages of the channel arrive.
    listening: bool = attrs.field(default=False, init=False)
    #: Whether the first attempt to connect has ended, with or without success.
    tried: bool = attrs.field(default=False, init=False)
    _listener: RedisListener | None = attrs.field(default=None, init=False)
    _commands: _Link = attrs.field(init=False)
    _events: _Link = attrs.field(init=False)
    _timers: Timers = attrs.field(init=False)
    _watching: Deferred[None] | None = attrs.field(default=None, init=False)
    _running: bool = attrs.field(default=False, init=False)
    #: Keys of too large responses, in order, to report once Redis is available again.
    _too_large: dict[bytes, None] = attrs.field(factory=dict, init=False)
    #: Reasons of the current outage that were already logged.
    _said: set[str] = attrs.field(factory=set, init=False)
    _events_said: bool = attrs.field(default=False, init=False)
    #: Names of commands that Redis refused the last time.
    _refusals: set[str] = attrs.field(factory=set, init=False)
    #: Names of the commands in *probe*, without which kas cannot work.
    _needed: frozenset[str] = attrs.field(init=False)
    _dialler: Dialler = attrs.field(init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._timers = Timers(self._reactor)
        self._dialler = Dialler(self._settings, self._reactor, self._message)
        tried = {str(one[0]) for one in self._probe}
        self._needed = frozenset(tried | {"MULTI", "EXEC"})

        def link(*rest: Any) -> _Link:
            backoff = Backoff(self._random, FIRST_PAUSE, LONGEST_PAUSE)
            return _Link(self._reactor, backoff, *rest)

        probe = [("MULTI",), *self._probe, ("EXEC",)] if self._probe else []
        make = partial(self._dialler.open, probe)
        self._commands = link(make, self._up, self._down)
        make = partial(self._dialler.open, [("SUBSCRIBE", self._channel)])
        self._events = link(make, self._events_up, self._events_down)

    @property
    def connections(self) -> int:
        """Number of connections so far, including sentinels; for metrics."""
        return self._dialler.made

    @property
    def up(self) -> bool:
        """Whether the client sends commands, instead of failing them at once."""
        return not self.reason

    def start(self, listener: RedisListener) -> None:
        """Connect in the background, and report events to *listener* from now on."""
        self._listener = listener
        self._running = True
        self._commands.start()
        if self._channel:
            self._events.start()
            self._later("ping", PING_INTERVAL, self._ping)
        if self._settings.sentinel is not None:
            self._later("sentinel", SENTINEL_INTERVAL, self._watch_sentinels)

    def stop(self) -> None:
        """Disconnect at once."""
        self._running = False
        self._listener = None
        self.reason, self.listening = "kas is shutting down", False
        self._timers.cancel_all()
        if self._watching is not None:
            self._watching.cancel()
        self._commands.stop()
        self._events.stop()

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        if self._running:
            self._timers.later(name, seconds, call)

    # Methods that send commands.

    def call(self, *command: bytes | str | int) -> Deferred[Any]:
        """
        Send one command; its response arrives before the responses to later commands.

        The Deferred fails with `RedisUnavailable` (at once during a known outage), or
        with `RedisRefused`.
        """

        def answered(results: list[Any]) -> Any:
            if isinstance(results[0], RedisRefused):
                raise results[0]
            return results[0]

        return self._send([command]).addCallback(answered)

    def transaction(self, commands: Sequence[Command]) -> Deferred[list[Any]]:
        """
        Execute all of *commands* between MULTI and EXEC.

        The result has a response for each command, which may be a `RedisRefused`: Redis
        executes the other commands anyway. If no command was executed, the Deferred
        fails as the Deferred of `call` does.
        """

        def answered(results: list[Any]) -> list[Any]:
            for result in results[:-1]:
                if isinstance(result, RedisRefused):
                    raise result
            final = results[-1]
            if isinstance(final, RedisRefused):
                raise final
            return list(final)

        return self._send([("MULTI",), *commands, ("EXEC",)]).addCallback(answered)

    def _send(self, commands: Sequence[Command]) -> Deferred[list[Any]]:
        connection = self._commands.connection
        if connection is None or connection.failed:
            self.counters.refused += 1
            return fail(RedisUnavailable(f"Redis is down: {self.reason}"))
        self.counters.commands += len(commands)
        sent = connection.send(commands)
        return sent.addCallbacks(
            lambda replies: self._judge(connection, commands, replies), self._count
        )

    def _count(self, failure: Failure) -> Failure:
        self.counters.failures += 1
        if isinstance(failure.value, RedisTooLarge):
            room = MAX_TOO_LARGE - len(self._too_large)
            self._too_large.update(dict.fromkeys(failure.value.keys[:room]))
        return failure

    def foreign(self, key: bytes) -> None:
        """Notify the owner of a value at *key* that kas cannot have written."""
        self._tell(lambda owner: owner.redis_wrong_type(key))

    def _judge(
        self, connection: Connection, commands: Sequence[Command], replies: list[Any]
    ) -> list[Any]:
        """
        Raise the error if Redis is unusable; return errors of single commands as
        results.
        """
        inner = commands[1:-1]
        results = []
        for command, reply in zip(commands, replies, strict=True):
            name = str(command[0])
            if name == "EXEC" and isinstance(reply, list):
                result: Any = [
                    self._result(connection, one, each)
                    for one, each in zip(inner, reply, strict=True)
                ]
            else:
                result = self._result(connection, command, reply)
            results.append(result)
        return results

    def _result(self, connection: Connection, command: Command, reply: Any) -> Any:
        name = str(command[0])
        if not isinstance(reply, Exception):
            # Ignore QUEUED, which means only that the command may be called.
            if self._refusals and reply not in (b"QUEUED", "QUEUED"):
                self._accepted(name)
            return reply
        self.counters.failures += 1
        code = error_code(reply)
        if code in UNUSABLE and (code != "NOPERM" or name in self._needed):
            reason = f"{connection.address} responded with {code}: {UNUSABLE[code]}"
            connection.fail(reason)
            raise RedisUnavailable(reason)
        if code == "WRONGTYPE" and isinstance(command[1], bytes):
            self.foreign(command[1])
        else:
            self._refused(code, name)
        return RedisRefused(code, name)

    def _refused(self, code: str, name: str) -> None:
        """Log a refused command once, until Redis accepts it again."""
        if name not in self._refusals:
            self._refusals.add(name)
            self._log.warn(
                "Redis responds to {command} with {code}{meaning}; features that "
                "need this command do not work until Redis accepts it",
                code=code,
                command=name,
                meaning=f" ({UNUSABLE[code]})" if code in UNUSABLE else "",
            )

    def _accepted(self, name: str) -> None:
        if name in self._refusals:
            self._refusals.discard(name)
            self._log.info("Redis accepts {command} again", command=name)

    # Methods that follow the state of the connections.

    def _up(self) -> None:
        connection = self._commands.connection
        assert connection is not None
        self.reason, self.tried = "", True
        self._said.clear()
        self._same_server(self._events, connection.address)
        self._log.info(
            "Redis at {address} is available{purpose}",
            address=connection.address,
            purpose=self._purpose,
        )
        self._tell(lambda owner: owner.redis_up())
        keys, self._too_large = self._too_large, {}
        for key in keys:
            self.foreign(key)

    def _down(self, reason: str) -> None:
        was_up, self.reason, self.tried = self.up, reason, True
        if reason not in self._said and len(self._said) < MAX_REASONS:
            self._said.add(reason)
            self._log.warn(
                "Redis is unavailable{purpose}, {meaning}: {reason}",
                purpose=self._purpose,
                meaning=self._while_down,
                reason=reason,
            )
        if was_up:
            self._tell(lambda owner: owner.redis_down())

    def _events_up(self) -> None:
        connection = self._events.connection
        assert connection is not None
        self.listening = True
        self._same_server(self._commands, connection.address)
        if self._events_said:
            self._events_said = False
            self._log.info("events from Redis arrive again")
        self._tell(lambda owner: owner.redis_listening(True))

    def _events_down(self, reason: str) -> None:
        was, self.listening = self.listening, False
        tried = self._events.failures >= EVENT_ATTEMPTS
        if self.up and tried and not self._events_said:
            self._events_said = True
            self._log.warn("no events from Redis arrive: {reason}", reason=reason)
        if was:
            self._tell(lambda owner: owner.redis_listening(False))

    def _same_server(self, other: _Link, address: str) -> None:
        # Close the other connection, too: after a failover, it may still lead to the
        # old master.
        if other.connection is not None and other.connection.address != address:
            other.connection.fail(f"{address} is the master now")

    def _message(self, data: bytes) -> None:
        self.counters.messages += 1
        self._tell(lambda owner: owner.redis_message(data))

    def _tell(self, call: Callable[[RedisListener], None]) -> None:
        if self._listener is not None:
            # An exception from the owner must not end the connection.
            for_each((self._listener,), call, "the owner of the connection to Redis")

    def _ping(self) -> None:
        self._later("ping", PING_INTERVAL, self._ping)
        connection = self._events.connection
        if connection is not None:
            self.counters.commands += 1
            # Ignore the result: without a response, the connection fails, and its link
            # logs the reason.
            connection.send([("PING",)]).addErrback(trap_redis_errors)

    # Methods that query the sentinels.

    def _watch_sentinels(self) -> None:
        self._watching = Deferred.fromCoroutine(self._follow())
        self._watching.addErrback(self._not_followed)
        self._watching.addBoth(
            lambda _: self._later("sentinel", SENTINEL_INTERVAL, self._watch_sentinels)
        )

    def _not_followed(self, failure: Failure) -> None:
        if failure.check(CancelledError, RedisUnavailable) is None:
            self._log.failure("querying the sentinels failed", failure)
        # Ignore errors: the connections continue without the sentinels.

    async def _follow(self) -> None:
        host, port = await self._dialler.where()
        for link in (self._commands, self._events):
            self._same_server(link, f"{host}:{port}")
