"""
One connection to Redis: the only file that uses txredisapi.

The connection uses only txredisapi's protocol, with hiredis' parser. txredisapi's pools
do not keep the order of commands, wait forever while Redis is down, convert texts that
look like numbers, do not verify certificates by default, hang on a wrong password, and
have no TLS for Sentinel.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import hiredis
import txredisapi
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from tunnel.errors import TunnelError
from tunnel.toolkit.timers import cancel_call
from tunnel.transport.negotiation import abort

__all__ = [
    "MAX_REPLY",
    "MAX_WAITING",
    "UNUSABLE",
    "Command",
    "Connection",
    "RedisRefused",
    "RedisTooLarge",
    "RedisUnavailable",
    "ask",
    "error_code",
    "trap_redis_errors",
]

Command = tuple[bytes | str | int, ...]

#: Maximum number of commands and transactions that wait for their response at the same
#: time.  Redis handles a hundred thousand commands in a second, so it is overloaded if
#: more commands are waiting.
MAX_WAITING = 2000

#: Maximum bytes of one response, counted when they arrive, because another program may
#: have written values of any size: more than the names of 100,000 connections (HKEYS),
#: which are the largest response that kas needs.
MAX_REPLY = 8 * 1024 * 1024

#: Commands that return the content of keys, each with whether all its arguments are
#: keys.
_READS = {
    "GET": False,
    "HKEYS": False,
    "HMGET": False,
    "HSCAN": False,
    "MGET": True,
    "SMEMBERS": False,
}

#: Error codes that mean that Redis is unusable until they stop, each with its meaning.
#: The log omits the text from Redis, because it may repeat the command, including a
#: password.
UNUSABLE = {
    "READONLY": "it is a replica",
    "OOM": "its memory is full (maxmemory)",
    "NOAUTH": "it requires a password; name its file in redis.password_file",
    "WRONGPASS": "redis.username or the password in redis.password_file is wrong",
    "NOPERM": "its ACL forbids commands that kas needs",
    "LOADING": "it is still loading its data",
    "MASTERDOWN": "it is a replica that lost its master",
    "MISCONF": "it cannot write to its disk",
    "NOREPLICAS": "it has too few replicas",
    "BUSY": "a script keeps it busy",
    "CLUSTERDOWN": "it is a cluster that is down",
    "MOVED": "it is a cluster, which kas cannot use; Sentinel works",
    "CROSSSLOT": "it is a cluster, which kas cannot use; Sentinel works",
}

_CODE = re.compile(r"[A-Z]{2,20}(?= |$)")


class RedisUnavailable(TunnelError):
    """
    Error for a command while Redis does not work; the text contains the reason, without
    secrets.
    """


class RedisRefused(TunnelError):
    """
    Error for a command that Redis refused; other commands of the same transaction were
    executed.
    """

    def __init__(self, code: str, command: str) -> None:
        super().__init__(f"Redis responded with {code} to {command}")
        self.code = code


class RedisTooLarge(RedisUnavailable):
    """
    Error for a command whose response was too large, so that the connection was closed.

    :ivar keys: the keys that the command reads; one of them has a value that kas did
        not write.
    """

    def __init__(self, text: str, keys: Sequence[bytes]) -> None:
        super().__init__(text)
        self.keys = tuple(keys)


def trap_redis_errors(failure: Failure) -> None:
    """
    Handle the failure of a command whose response has no reader.

    Nothing is logged, because the client already logs an outage of Redis and each
    refused command.
    """
    failure.trap(RedisRefused, RedisUnavailable)


def error_code(error: Exception) -> str:
    found = _CODE.match(str(error))
    return found[0] if found else "ERR"


@attrs.define(eq=False)
class _Call:
    """Commands that were sent together, and the responses that have arrived so far."""

    commands: Sequence[Command]
    deadline: float
    done: Deferred[list[Any]]
    replies: list[Any] = attrs.Factory(list)


class Connection(txredisapi.RedisProtocol):  # type: ignore[misc]
    """
    Connection to Redis, with responses in order, and a timeout for each response.

    :param on_message: called with each message on a connection that has subscribed.
    """

    def __init__(
        self, clock: IReactorTime, timeout: float, on_message: Callable[[bytes], None]
    ) -> None:
        super().__init__(charset=None, convertNumbers=False)
        self._clock = clock
        self._timeout = timeout
        self._on_message = on_message
        self._calls: deque[_Call] = deque()
        self._timer: IDelayedCall | None = None
        #: Number of bytes that arrived since the last complete response.
        self._arrived = 0
        #: Address of the other end, for the log.
        self.address = ""
        #: Reason why the connection can no longer be used; empty if it can be used.
        self.failed = ""
        #: Deferred that fires with `failed` when the connection has ended.
        self.ended: Deferred[str] = Deferred()

    def connectionMade(self) -> None:
        """
        Do nothing: the method of the base class would authenticate, and log the
        response.
        """

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self.fail(f"{self.address}: {reason.getErrorMessage()}")

    def dataReceived(self, data: bytes, unpause: bool = False) -> None:
        if self.failed:
            return
        self._arrived += len(data)
        if self._arrived > MAX_REPLY:
            self._too_large()
            return
        try:
            super().dataReceived(data, unpause)
        except txredisapi.InvalidData:
            self.fail(f"{self.address} does not use Redis' protocol")

    def tryConvertData(self, data: Any) -> Any:
        """Return *data*: the method of the base class would copy each response."""
        return data

    def _too_large(self) -> None:
        """Close the connection, because the rest of the response would be as large."""
        text = f"{self.address} sent more than {MAX_REPLY // 1024**2} MiB at once"
        call = self._calls.popleft() if self._calls else None
        if call is None:
            self.fail(text)
            return
        command = call.commands[len(call.replies)]
        keys = _keys_of(call.commands if command[0] == "EXEC" else [command])
        if keys:
            shown = keys[0].decode(errors="backslashreplace")[:200]
            more = f" and {len(keys) - 1} more keys" if len(keys) > 1 else ""
            text += f", for {shown}{more}: check which other program writes there"
        self.fail(text)
        call.done.errback(RedisTooLarge(text, keys))

    def fail(self, reason: str) -> None:
        """Close the connection, and fail all calls that wait for a response."""
        if self.failed:
            return
        self.failed = reason
        cancel_call(self._timer)
        if self.transport is not None:
            abort(self.transport)
        calls, self._calls = self._calls, deque()
        # Notify the waiting calls last, because their callbacks may reconnect.
        self.ended.callback(reason)
        for call in calls:
            call.done.errback(RedisUnavailable(reason))

    def send(self, commands: Sequence[Command]) -> Deferred[list[Any]]:
        """
        Send *commands*, and return their responses, including errors, in one list.
        """
        if self.failed:
            return fail(RedisUnavailable(self.failed))
        if len(self._calls) >= MAX_WAITING:
            return fail(RedisUnavailable("too many commands are waiting for Redis"))
        call = _Call(commands, self._clock.seconds() + self._timeout, Deferred())
        self._calls.append(call)
        if self._timer is None or not self._timer.active():
            self._timer = self._clock.callLater(self._timeout, self._late)
        # Write all commands at once, because with TLS each write is a record and a
        # system call.
        packed = [hiredis.pack_command(one) for one in commands]  # type: ignore[arg-type]
        self.transport.write(b"".join(packed))
        return call.done

    def _late(self) -> None:
        if not self._calls:
            return
        # Set one timer, for the oldest call: its deadline is the first, because all
        # calls have the same timeout.
        left = self._calls[0].deadline - self._clock.seconds()
        if left <= 0:
            self.fail(f"{self.address} did not respond within {self._timeout:g} s")
        else:
            self._timer = self._clock.callLater(left, self._late)

    def replyReceived(self, reply: Any) -> None:
        """Handle a response or a message."""
        self._arrived = 0
        if isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":
            self._on_message(reply[2])
            return
        if not self._calls:
            if isinstance(reply, Exception):
                # The error is not a response to a command, for example "max number of
                # clients reached".
                self.fail(f"{self.address} refuses the connection")
            else:
                self.fail(f"{self.address} sent a response without a command")
            return
        call = self._calls[0]
        call.replies.append(reply)
        if len(call.replies) == len(call.commands):
            self._calls.popleft()
            call.done.callback(call.replies)


def _keys_of(commands: Sequence[Command]) -> list[bytes]:
    keys = []
    for name, *arguments in commands:
        every = _READS.get(str(name))
        if every is not None:
            found = arguments if every else arguments[:1]
            keys += [key for key in found if isinstance(key, bytes)]
    return keys


async def ask(connection: Connection, commands: Sequence[Command]) -> list[Any]:
    """Return the responses to *commands*; raise the first response that is an error."""
    replies = await connection.send(commands)
    flat = [(str(one[0]), reply) for one, reply in zip(commands, replies, strict=True)]
    if commands[-1][0] == "EXEC" and isinstance(replies[-1], list):
        names = [str(one[0]) for one in commands[1:-1]]
        flat += zip(names, replies[-1], strict=True)
    for name, reply in flat:
        if isinstance(reply, Exception):
            code = error_code(reply)
            meaning = UNUSABLE.get(code, f"it refuses {name}")
            raise RedisUnavailable(
                f"{connection.address} responded with {code}: {meaning}"
            )
    return replies
