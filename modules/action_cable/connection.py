"""One connection: its credential, its commands in order, its snapshots, and its end."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred
from twisted.internet.interfaces import IAddress
from twisted.logger import Logger
from twisted.python.failure import Failure

from modules.action_cable import messages
from modules.action_cable.caller import CableCaller
from modules.action_cable.credentials import CableCredential, parse_bearer
from modules.action_cable.hub import CableHub
from modules.action_cable.messages import CableCommand, Disconnect, InvalidCommand
from modules.action_cable.subscription import MAX_SNAPSHOT_BYTES, CableSubscription
from tunnel.api import WebSocketReceiver
from tunnel.errors import CallError, Status
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.time_limit import within
from tunnel.toolkit.timers import Timers

__all__ = [
    "AUTHENTICATE_SECONDS",
    "AUTHORIZE_SECONDS",
    "CALL_SECONDS",
    "MAX_COMMAND_BYTES",
    "MAX_IDENTIFIER",
    "MAX_QUEUED_BYTES",
    "MAX_QUEUED_COMMANDS",
    "MAX_SUBSCRIPTIONS",
    "MAX_UNSENT_BYTES",
    "PING_SECONDS",
    "RESUME_SECONDS",
    "SOCKET_LIMIT",
    "SPREAD_SECONDS",
    "UNREAD_SECONDS",
    "CableConnection",
]

#: Seconds between two signs of life; clients give up after six seconds without one.
PING_SECONDS: Final = 3.0

#: Seconds after which a client that reads nothing is disconnected.
UNREAD_SECONDS: Final = 30.0

#: Maximum seconds until the first message of a client without a credential contains
#: one.
AUTHENTICATE_SECONDS: Final = 10.0

#: Maximum seconds until an agent has accepted a credential that does not name one.
AUTHORIZE_SECONDS: Final = 30.0

#: Maximum seconds of one call of a channel.
CALL_SECONDS: Final = 10.0

#: Seconds that a client has to resume a subscription before kas sends a snapshot.
RESUME_SECONDS: Final = 0.2

#: Maximum seconds over which a kas that stops spreads the ends of its connections,
#: because all clients come back after the same time.
SPREAD_SECONDS: Final = 10.0

#: Maximum number of subscriptions of one connection.
MAX_SUBSCRIPTIONS: Final = 100

#: Maximum bytes of a command.
MAX_COMMAND_BYTES: Final = 64 * 1024

#: Maximum number and characters of commands that wait for an earlier one; with more,
#: kas stops reading.
MAX_QUEUED_COMMANDS: Final = 200
MAX_QUEUED_BYTES: Final = 256 * 1024

#: Maximum bytes that wait for the client before it counts as slow.
MAX_UNSENT_BYTES: Final = 1024 * 1024

#: Maximum bytes that wait for the client at all: one snapshot, and the response to one
#: command, begin below `MAX_UNSENT_BYTES`; pings follow.
SOCKET_LIMIT: Final = MAX_UNSENT_BYTES + MAX_SNAPSHOT_BYTES + 1024 * 1024

#: Maximum characters of the identifier of a subscription, which is in memory several
#: times.
MAX_IDENTIFIER: Final = 4096

#: Fraction of the time until kas stops; all connections end within this fraction.
_PART_OF_GRACE: Final = 0.8

#: Statuses of a credential that is refused, and not only unknown at this time.
_REFUSED: Final = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.NOT_FOUND)

#: Internal command: join the new channel of a subscription.
_JOIN: Final = "join"

#: Part of a command that a repeated ``subscribe`` costs, which kas ignores.
_REPEATED: Final = 0.1

#: Largest part of the queue's limits at which kas reads again.
_ROOM: Final = 0.5


class CableConnection(WebSocketReceiver):
    """
    One connection of a client.

    :param credential: None if the first message contains it.
    :param malformed: whether the request had a credential that cannot be valid.
    :param program: the client's ``User-Agent``.
    """

    _log = Logger()

    def __init__(
        self,
        hub: CableHub,
        peer_address: IAddress,
        credential: CableCredential | None,
        malformed: bool = False,
        program: str = "",
    ) -> None:
        self._hub = hub
        self._program = program
        self._malformed = malformed
        self._peer_address = peer_address
        self._credential = credential
        self._timers = Timers(hub.clock)
        self._caller: CableCaller | None = None
        self._admitted = False
        self._welcomed = False
        self._over = False
        self._subscriptions: dict[str, CableSubscription] = {}
        self._commands: deque[CableCommand] = deque()
        self._queued_bytes = 0
        self._current: CableCommand | None = None
        self._reading = True
        #: Whether the client has sent more commands than its user may send now.
        self._over_budget = False
        #: Calls of channels and checks of credentials that are not finished.
        self._calls: set[Deferred[Any]] = set()
        #: Subscriptions that need a snapshot, or a resumption with the client's data.
        self._wanted: dict[CableSubscription, dict[str, Any] | None] = {}
        self._in_snapshot = False
        #: Subscriptions whose clients may resume them now.
        self._resumable: set[CableSubscription] = set()
        self.pending_bytes = 0

    @property
    def credential_ids(self) -> set[str]:
        """Ids of the credentials that the connection holds open."""
        return set() if self._caller is None else self._caller.credential_ids

    def channels(self) -> list[str]:
        """Return the name of the channel of each subscription."""
        return [one.channel for one in self._subscriptions.values()]

    def disconnect(self, reason: Disconnect, reconnect: bool) -> None:
        """
        End the connection.

        :param reconnect: whether the client comes back by itself.
        """
        if not self._over:
            self._hub.metrics.disconnects[reason.value] += 1
            self.socket.send(messages.disconnection(reason, reconnect))
            self._end()
            self.socket.close()

    # WebSocketReceiver

    def opened(self) -> None:
        """Check the credential, or wait for it."""
        self._hub.connections.add(self)
        if self._malformed:
            self._unauthorized()
        elif self._credential is None:
            self._timers.later("authenticate", AUTHENTICATE_SECONDS, self._unauthorized)
        else:
            self._authenticate(self._credential)

    def message_received(self, message: str | bytes) -> None:
        """Handle a command now, or after earlier ones."""
        if self._over:
            return
        try:
            if isinstance(message, bytes):
                raise InvalidCommand("a binary message")
            command = messages.parse_command(message)
        except InvalidCommand:
            self.disconnect(Disconnect.INVALID_REQUEST, False)
            return
        if command.name == messages.AUTHENTICATE:
            if self._credential is not None:
                self.disconnect(Disconnect.INVALID_REQUEST, False)
                return
            try:
                credential = parse_bearer(command.data)
            except CallError:
                self._unauthorized()
                return
            self._authenticate(credential)
        elif self._credential is None:
            self._unauthorized()
        else:
            self._enqueue(command)

    def resumed(self) -> None:
        """Send what waited for the client."""
        self._catch_up()

    def draining(self, seconds: float) -> None:
        """End the connection within *seconds*, at another time than other ones."""
        most = min(SPREAD_SECONDS, seconds * _PART_OF_GRACE)
        self._timers.later(
            "restart",
            self._hub.random() * most,
            lambda: self.disconnect(Disconnect.SERVER_RESTART, True),
        )

    def closed(self, code: int, reason: str) -> None:
        """End everything that belongs to the connection."""
        self._end()

    # SubscriptionOwner

    @property
    def slow(self) -> bool:
        """Whether too much data waits for the client."""
        unsent: int = self.socket.unsent
        return unsent >= MAX_UNSENT_BYTES

    def write(self, text: str) -> None:
        """Send a message of a channel."""
        self._hub.metrics.messages += 1
        self.socket.send(text)

    def fall_behind(self, subscription: CableSubscription) -> None:
        """Send a snapshot as soon as the client has read the data that waits."""
        self._hub.metrics.behind += 1
        self._want(subscription, None)

    def reject(self, subscription: CableSubscription) -> None:
        """End a subscription, so that the client forgets it."""
        self._hub.metrics.rejections += 1
        self._leave(subscription)
        self.socket.send(messages.rejection(subscription.identifier))

    def channel_changed(self, name: str) -> None:
        """Move the subscriptions to a channel that was replaced or withdrawn."""
        for one in tuple(self._subscriptions.values()):
            if one.channel == name and one.confirmed:
                one.stop_messages()
                self._wanted.pop(one, None)
                self._enqueue(CableCommand(_JOIN, one.identifier))

    # The credential

    def _authenticate(self, credential: CableCredential) -> None:
        self._credential = credential
        self._timers.cancel("authenticate")
        self._admitted = self._hub.admit(credential.key)
        if not self._admitted:
            # The client may come back, because another connection may have ended.
            self.disconnect(Disconnect.REMOTE, True)
            return
        self._caller = CableCaller(
            self._hub.users,
            credential,
            self._peer_address,
            self._authorized,
            self._program,
        )
        checking = Deferred.fromCoroutine(self._check(self._caller))
        checking.addErrback(self._broken)

    async def _check(self, caller: CableCaller) -> None:
        """Welcome the client if its credential is valid."""
        agent = caller.credential.agent
        if agent:
            try:
                await self._call(caller.authorize, agent)
            except CancelledError:
                return
            except (CallError, TimeoutError) as error:
                if isinstance(error, CallError) and error.status in _REFUSED:
                    self._unauthorized()
                else:
                    # The credential cannot be checked now.
                    self.disconnect(Disconnect.REMOTE, True)
                return
        else:
            # Only an agent can tell, with the first subscription.
            self._timers.later("authorize", AUTHORIZE_SECONDS, self._unauthorized)
        if not self._over:
            self._welcomed = True
            self.socket.send(messages.WELCOME)
            self._ping_later()
            self._pump()

    def _authorized(self) -> None:
        self._timers.cancel("authorize")

    def _unauthorized(self) -> None:
        self.disconnect(Disconnect.UNAUTHORIZED, False)

    def _ping_later(self) -> None:
        self._timers.later("ping", PING_SECONDS, self._ping)

    def _ping(self) -> None:
        self.socket.send(messages.ping(self._hub.time()))
        self._catch_up()
        self._ping_later()

    # Commands

    def _enqueue(self, command: CableCommand) -> None:
        if command.name == "subscribe" and self._repeats(command.identifier):
            self._spend(_REPEATED)
            return
        if command.name != _JOIN:
            self._spend(1)
        self._commands.append(command)
        self._queued_bytes += command.size
        if (
            len(self._commands) > MAX_QUEUED_COMMANDS
            or self._queued_bytes > MAX_QUEUED_BYTES
        ):
            self._stop_reading()
        self._pump()

    def _spend(self, cost: float) -> None:
        """Count a command of the user; if there are too many, stop reading."""
        assert self._caller is not None
        self._hub.commands.charge(self._caller.budget_owner, cost)
        self._await_budget()

    def _await_budget(self) -> None:
        """Read again as soon as the budget of the user permits a command."""
        assert self._caller is not None
        due = self._hub.commands.due(self._caller.budget_owner)
        self._over_budget = bool(due)
        if due:
            self._stop_reading()
            self._timers.later("budget", due, self._await_budget)
        else:
            self._read_again()

    def _repeats(self, identifier: str) -> bool:
        """
        Return whether the last unfinished command for *identifier* is a ``subscribe``:
        clients repeat it each half second until they get a response.
        """
        commands = [*self._commands]
        if self._current is not None:
            commands.insert(0, self._current)
        for one in reversed(commands):
            if one.identifier == identifier and one.name != "message":
                return one.name == "subscribe"
        return False

    def _pump(self) -> None:
        """
        Handle the commands one after the other, as long as the client reads the
        responses.
        """
        if (
            self._welcomed
            and self._current is None
            and self._commands
            and not self.slow
        ):
            self._current = self._commands[0]
            Deferred.fromCoroutine(self._run()).addErrback(self._broken)

    async def _run(self) -> None:
        try:
            while self._commands and not (self._over or self.slow):
                self._current = self._commands.popleft()
                self._queued_bytes -= self._current.size
                self._read_again()
                await self._handle(self._current)
        finally:
            self._current = None

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.socket.pause_reading()

    def _read_again(self) -> None:
        if (
            not self._reading
            and not self._over_budget
            and len(self._commands) <= _ROOM * MAX_QUEUED_COMMANDS
            and self._queued_bytes <= _ROOM * MAX_QUEUED_BYTES
        ):
            self._reading = True
            self.socket.resume_reading()

    async def _handle(self, command: CableCommand) -> None:
        name, identifier = command.name, command.identifier
        subscription = self._subscriptions.get(identifier)
        if name == _JOIN:
            if subscription is not None:
                await self._join(subscription)
            return
        known = name in ("subscribe", "unsubscribe", "message")
        self._hub.metrics.commands[name if known else "other"] += 1
        if name == "subscribe":
            if subscription is None:
                await self._subscribe(identifier)
            elif subscription.joined is not None:
                self._confirm(subscription)
                self._want(subscription, None)
        elif subscription is None:
            # Other servers ignore these, too.
            return
        elif name == "unsubscribe":
            self._hub.forget(self._key(identifier))
            self._leave(subscription)
        elif name == "message":
            await self._perform(subscription, command.data)

    async def _subscribe(self, identifier: str) -> None:
        params = messages.parse_object(identifier) or {}
        channel = params.pop("channel", None)
        if (
            not isinstance(channel, str)
            or len(identifier) > MAX_IDENTIFIER
            or not self._hub.knows(channel)
            or len(self._subscriptions) >= MAX_SUBSCRIPTIONS
        ):
            self._hub.metrics.rejections += 1
            self.socket.send(messages.rejection(identifier))
            return
        if self._hub.channel(channel) is None:
            # The module restarts, and the client repeats its command.
            return
        assert self._caller is not None
        subscription = CableSubscription(
            self, identifier, channel, params, self._caller
        )
        self._subscriptions[identifier] = subscription
        if not await self._join(subscription):
            return
        self._confirm(subscription)
        if isinstance(params.get("tab"), str) and self._hub.resumable(
            self._key(identifier)
        ):
            self._resumable.add(subscription)
            self._timers.later(
                "resume " + identifier,
                RESUME_SECONDS,
                lambda: self._not_resumed(subscription),
            )
        else:
            self._want(subscription, None)

    async def _join(self, subscription: CableSubscription) -> bool:
        """Let the channel listen for a subscription; return whether it does."""
        channel: Any = self._hub.channel(subscription.channel)
        earlier: Any = subscription.joined
        if earlier is channel:
            return bool(earlier is not None)
        if earlier is not None:
            self._tell_end(earlier, subscription)
        subscription.joined = channel
        if channel is None:
            return False
        try:
            await self._call(channel.subscribe, subscription)
        except CancelledError:
            return False
        except Exception as error:
            self._refused(subscription, error)
            return False
        if subscription.closed or self._over:
            return False
        if subscription.confirmed:
            self._want(subscription, None)
        return True

    def _refused(self, subscription: CableSubscription, error: Exception) -> None:
        if not isinstance(error, CallError):
            self._log.failure("channel {name} failed", name=subscription.channel)
        elif error.status is Status.UNAUTHENTICATED:
            self._unauthorized()
        subscription.reject()

    def _confirm(self, subscription: CableSubscription) -> None:
        subscription.confirmed = True
        self.socket.send(messages.confirmation(subscription.identifier))

    async def _perform(self, subscription: CableSubscription, text: str) -> None:
        data = messages.parse_object(text) or {}
        action = data.pop("action", None)
        if not isinstance(action, str) or subscription.joined is None:
            return
        if action == "resume":
            # Later, the client has had a snapshot, or will get one.
            if subscription in self._resumable:
                self._stop_waiting(subscription)
                self._want(subscription, data)
            return
        try:
            await self._call(subscription.joined.perform, subscription, action, data)
        except (CallError, CancelledError):
            return
        except Exception:
            self._log.failure("channel {name} failed", name=subscription.channel)

    def _leave(self, subscription: CableSubscription) -> None:
        """End a subscription without a message."""
        self._subscriptions.pop(subscription.identifier, None)
        self._wanted.pop(subscription, None)
        self._stop_waiting(subscription)
        channel, subscription.joined = subscription.joined, None
        subscription.end()
        if channel is not None:
            self._tell_end(channel, subscription)

    def _tell_end(self, channel: Any, subscription: CableSubscription) -> None:
        for_each((subscription,), channel.unsubscribe, "ending a subscription")

    def _key(self, identifier: str) -> str:
        """Return a key for `CableHub.resumable`."""
        assert self._credential is not None
        text = f"{self._credential.key}\0{identifier}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    # Snapshots

    def _stop_waiting(self, subscription: CableSubscription) -> None:
        self._resumable.discard(subscription)
        self._timers.cancel("resume " + subscription.identifier)

    def _not_resumed(self, subscription: CableSubscription) -> None:
        self._stop_waiting(subscription)
        self._want(subscription, None)

    def _want(
        self, subscription: CableSubscription, data: dict[str, Any] | None
    ) -> None:
        """Send a snapshot, or resume with *data*, as soon as the client has room."""
        self._stop_waiting(subscription)
        subscription.stop_messages()
        self._wanted[subscription] = data
        self._next_snapshot()

    def _next_snapshot(self) -> None:
        """Send the snapshots that are needed, unless that happens already."""
        if self._wanted and not self._in_snapshot:
            self._in_snapshot = True
            Deferred.fromCoroutine(self._send_snapshots()).addErrback(self._broken)

    async def _send_snapshots(self) -> None:
        """
        Send one snapshot after the other, because each may take a lot of memory.
        """
        try:
            while self._wanted and not self._over and not self.slow:
                subscription = next(iter(self._wanted))
                await self._snapshot(subscription, self._wanted.pop(subscription))
        finally:
            self._in_snapshot = False

    async def _snapshot(
        self, subscription: CableSubscription, data: dict[str, Any] | None
    ) -> None:
        channel = subscription.joined
        if channel is None:
            return
        subscription.begin_snapshot()
        try:
            if data is None:
                await self._call(channel.send_snapshot, subscription)
            else:
                await self._call(channel.resume, subscription, data)
        except CancelledError:
            return
        except Exception as error:
            if subscription.joined is channel:
                self._refused(subscription, error)
        finally:
            subscription.end_snapshot()

    def _catch_up(self) -> None:
        """Send what waited while the client was slow."""
        if not self._over and not self.slow:
            for one in tuple(self._subscriptions.values()):
                one.flush()
            self._next_snapshot()
            self._pump()

    # The end

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that may take its time, at most until the connection ends."""
        calling: Deferred[Any] = maybeDeferred(function, *arguments)
        answer = within(calling, CALL_SECONDS, self._hub.clock)
        self._calls.add(answer)
        try:
            return await answer
        finally:
            self._calls.discard(answer)

    def _end(self) -> None:
        """End everything; repeating it does nothing."""
        if self._over:
            return
        self._over = True
        self._hub.connections.discard(self)
        if self._admitted and self._credential is not None:
            self._hub.leave(self._credential.key)
        self._timers.cancel_all()
        self._commands.clear()
        self._wanted.clear()
        for_each(
            tuple(self._subscriptions.values()), self._leave, "ending a subscription"
        )
        for_each(tuple(self._calls), lambda one: one.cancel(), "cancelling a call")

    def _broken(self, failure: Failure) -> None:
        """Log an error of this file, and end the connection."""
        if failure.check(CancelledError) is None:
            self._log.failure("a connection of ActionCable failed", failure)
            self.disconnect(Disconnect.REMOTE, True)
