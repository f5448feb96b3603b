"""The protocol: commands, answers, order, snapshots, limits and ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from modules.action_cable.connection import (
    AUTHENTICATE_SECONDS,
    AUTHORIZE_SECONDS,
    CALL_SECONDS,
    MAX_COMMAND_BYTES,
    MAX_IDENTIFIER,
    MAX_QUEUED_BYTES,
    MAX_QUEUED_COMMANDS,
    MAX_SUBSCRIPTIONS,
    MAX_UNSENT_BYTES,
    PING_SECONDS,
    RESUME_SECONDS,
    SPREAD_SECONDS,
    UNREAD_SECONDS,
)
from modules.action_cable.hub import (
    COMMANDS_AT_ONCE,
    COMMANDS_PER_SECOND,
    MAX_RESUMABLE,
)
from modules.action_cable.subscription import MAX_PENDING_BYTES, MAX_SNAPSHOT_BYTES
from tests.modules.action_cable.world import (
    CableClient,
    CableWorld,
    FakeChannel,
    denied,
    identifier,
)
from tests.stubborn import stubborn
from tunnel.api import Access, CableStarted, CredentialRevoked
from tunnel.errors import CallError, Status

Waiting = Deferred[None]

UNAUTHORIZED = {"type": "disconnect", "reason": "unauthorized", "reconnect": False}
INVALID = {"type": "disconnect", "reason": "invalid_request", "reconnect": False}
REMOTE = {"type": "disconnect", "reason": "remote", "reconnect": True}
RESTART = {"type": "disconnect", "reason": "server_restart", "reconnect": True}
CLOSED = (1000, "")


@pytest.fixture
def world() -> CableWorld:
    return CableWorld()


def confirmed(text: str) -> dict[str, Any]:
    return {"identifier": text, "type": "confirm_subscription"}


def rejected(text: str) -> dict[str, Any]:
    return {"identifier": text, "type": "reject_subscription"}


def sent(text: str, message: Any) -> dict[str, Any]:
    return {"identifier": text, "message": message}


def test_subscribe(world: CableWorld) -> None:
    """Welcome, confirmation, snapshot, messages, and the end without an answer."""
    client = world.welcomed()
    assert client.core.subprotocol == "actioncable-v1-json"
    text = identifier(id=1)
    client.subscribe(text)
    assert client.seen() == [confirmed(text), sent(text, {"snapshot": 1})]
    subscription = world.channel.subscription
    assert (subscription.channel, subscription.params) == ("TestChannel", {"id": 1})
    subscription.send({"e": 1})
    subscription.send_json('{"s":[1]}')
    assert client.seen() == [sent(text, {"e": 1}), sent(text, {"s": [1]})]
    client.command("unsubscribe", text)
    assert client.seen() == []
    assert subscription.closed
    subscription.send({"e": 2})
    assert client.seen() == []
    assert world.channel.calls == ["subscribe", "snapshot", "unsubscribe"]


@pytest.mark.parametrize(
    "text",
    [
        '{"id":1,  "channel":"TestChannel"}',
        '{"channel":"TestChannel","name":"ä\u2028\\ud83d"}',
        '{"channel": "TestChannel", "channel": "TestChannel"}',
    ],
)
def test_identifier(world: CableWorld, text: str) -> None:
    """The identifier comes back as the same text."""
    client = world.welcomed()
    client.subscribe(text)
    assert [one["identifier"] for one in client.seen()] == [text, text]


def test_surrogates(world: CableWorld) -> None:
    """Half a character, which JSON can hold, comes back, too."""
    client = world.welcomed()
    client.send(
        r'{"command":"subscribe","identifier":"{\"channel\":\"TestChannel\",\"a\":\"\ud800\"}"}'
    )
    assert len(client.seen()) == 2


def test_ping(world: CableWorld) -> None:
    """A sign of life each three seconds, with the time in whole seconds."""
    client = world.welcomed()
    for _ in range(3):
        world.clock.advance(PING_SECONDS - 0.1)
        assert client.seen() == []
        world.clock.advance(0.1)
        assert client.seen() == [{"type": "ping", "message": 1234}]


def test_repeated(world: CableWorld) -> None:
    """A second subscribe is confirmed again, with a snapshot, and joins once."""
    client = world.subscribed()
    client.subscribe(identifier())
    assert client.seen() == [
        confirmed(identifier()),
        sent(identifier(), {"snapshot": 2}),
    ]
    assert world.channel.calls == ["subscribe", "snapshot", "snapshot"]


def test_repeated_before_the_answer(world: CableWorld) -> None:
    """A client repeats the command until it is answered, which happens once."""
    client = world.welcomed()
    listening: Deferred[None] = Deferred()
    world.channel.results["subscribe"] = listening
    for _ in range(5):
        client.subscribe(identifier())
    assert client.seen() == []
    listening.callback(None)
    assert client.seen() == [
        confirmed(identifier()),
        sent(identifier(), {"snapshot": 1}),
    ]
    assert world.channel.calls == ["subscribe", "snapshot"]


def test_order(world: CableWorld) -> None:
    """Each command waits for the one before it."""
    client = world.welcomed()
    first: Deferred[None] = Deferred()
    world.channel.results["subscribe"] = first
    one, two = identifier(id=1), identifier(id=2)
    client.subscribe(one)
    client.perform(one, "act", x=1)
    client.command("unsubscribe", one)
    client.subscribe(one)
    client.subscribe(two)
    assert world.channel.calls == ["subscribe"]
    world.channel.results.clear()
    first.callback(None)
    assert world.channel.calls == [
        "subscribe",
        "snapshot",
        ("act", {"x": 1}),
        "unsubscribe",
        *["subscribe", "snapshot"] * 2,
    ]
    assert [one["identifier"] for one in client.seen()] == [one] * 4 + [two] * 2


def test_nothing_before_the_confirmation(world: CableWorld) -> None:
    """A channel that is early loses nothing: the snapshot contains it."""
    client = world.welcomed()
    world.channel.results["subscribe"] = listening = Waiting()
    client.subscribe(identifier())
    world.channel.subscription.send({"early": 1})
    listening.callback(None)
    assert [one.get("message") for one in client.seen()] == [None, {"snapshot": 1}]


def test_rejected(world: CableWorld) -> None:
    """A refusal, a failure or a slow channel rejects; the connection goes on."""
    client = world.welcomed()
    text = identifier()
    with capturedLogs() as events:
        for result in (denied(), ZeroDivisionError(), Waiting()):
            world.channel.results["subscribe"] = result
            client.subscribe(text)
            if isinstance(result, Deferred):
                assert client.seen() == []
                world.clock.advance(CALL_SECONDS)
                assert client.seen()[0]["type"] == "ping"
            else:
                assert client.seen() == [rejected(text)]
    assert len([one for one in events if "log_failure" in one]) == 2
    assert world.channel.calls == ["subscribe", "unsubscribe"] * 3
    assert world.channel.subscription.closed


def test_slow_channel_is_rejected(world: CableWorld) -> None:
    """The client learns it."""
    client = world.welcomed()
    world.channel.results["subscribe"] = Deferred()
    client.subscribe(identifier())
    with capturedLogs():
        world.clock.advance(CALL_SECONDS)
    assert rejected(identifier()) in client.seen()


def test_rejected_later(world: CableWorld) -> None:
    """A channel may end a subscription at any time."""
    client = world.subscribed()
    world.channel.subscription.reject()
    world.channel.subscription.reject()
    assert client.seen() == [rejected(identifier())]
    assert world.channel.calls[-1] == "unsubscribe"


def test_rejected_while_joining(world: CableWorld) -> None:
    """It is not confirmed afterwards."""
    client = world.welcomed()
    world.channel.results["subscribe"] = listening = Waiting()
    client.subscribe(identifier())
    world.channel.subscription.reject()
    listening.callback(None)
    assert client.seen() == [rejected(identifier())]


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"channel":1}', identifier("Other"), "[" * 9999]
)
def test_unknown_channel(world: CableWorld, text: str) -> None:
    """It is rejected, so that the client does not ask again."""
    client = world.welcomed()
    client.subscribe(text)
    assert client.seen() == [rejected(text)]


def test_too_many_subscriptions(world: CableWorld) -> None:
    """One more than the limit is rejected; one that ends makes room."""
    client = world.welcomed()
    for number in range(MAX_SUBSCRIPTIONS):
        client.subscribe(identifier(id=number))
    assert len(client.seen()) == 2 * MAX_SUBSCRIPTIONS
    more = identifier(id="more")
    client.subscribe(more)
    assert client.seen() == [rejected(more)]
    client.command("unsubscribe", identifier(id=0))
    client.subscribe(more)
    assert client.seen()[0] == confirmed(more)


def test_perform(world: CableWorld) -> None:
    """Actions reach the channel; their errors do not end anything."""
    client = world.subscribed()
    client.perform(identifier(), "act", x=[1])
    assert world.channel.calls[-1] == ("act", {"x": [1]})
    with capturedLogs() as events:
        for error in (denied(), ZeroDivisionError()):
            world.channel.results["perform"] = error
            client.perform(identifier(), "act")
    assert len([one for one in events if "log_failure" in one]) == 1
    count = len(world.channel.calls)
    for data in ("x", "[]", "{}", '{"action":1}'):
        client.command("message", identifier(), data=data)
    client.perform(identifier(id="unknown"), "act")
    client.command("unsubscribe", identifier(id="unknown"))
    client.command("later", identifier())
    assert client.seen() == []
    assert len(world.channel.calls) == count
    assert world.hub.metrics.commands["other"] == 1


@pytest.mark.parametrize(
    "message",
    [
        *(b"{}", "x", "[]", "{}", '{"command":1}', '{"command":"subscribe"}'),
        '{"command":"subscribe","identifier":1}',
        '{"command":"message","identifier":"x"}',
        "[" * 60_000,
    ],
)
def test_invalid(world: CableWorld, message: str | bytes) -> None:
    """A client that sends such messages must not come back with them."""
    client = world.subscribed()
    client.send(message)
    assert client.seen() == [INVALID, CLOSED]
    assert world.channel.calls[-1] == "unsubscribe"


def test_too_large_a_command(world: CableWorld) -> None:
    """The WebSocket refuses it."""
    client = world.welcomed()
    client.send(" " * MAX_COMMAND_BYTES + "{}")
    assert client.seen()[-1][0] == 1009


def test_queue(world: CableWorld) -> None:
    """A client with too many waiting commands is not read until they are handled."""
    for count, size in ((MAX_QUEUED_COMMANDS, 1), (8, MAX_QUEUED_BYTES // 8)):
        client = world.welcomed()
        world.channel.results["perform"] = acting = Waiting()
        client.subscribe(identifier())
        for number in range(count + 1):
            assert client.transport.producerState == "producing", number
            client.perform(identifier(), "act", x="x" * size)
        client.perform(identifier(), "act", x="x" * size)
        assert client.transport.producerState == "paused"
        world.channel.results.clear()
        acting.callback(None)
        world.clock.advance(0)
        assert client.transport.producerState == "producing"
        client.lose()


def test_responses_that_are_not_read(world: CableWorld) -> None:
    """Commands wait while their client does not read the responses."""
    client = world.welcomed()
    client.unread = MAX_UNSENT_BYTES
    text = identifier("Unknown")
    for _ in range(MAX_QUEUED_COMMANDS + 1):
        client.command("unsubscribe", identifier())
    client.subscribe(text)
    assert client.transport.producerState == "paused"
    assert client.seen() == []
    client.unread = 0
    client.protocol.resumeProducing()
    world.clock.advance(0)
    assert client.seen() == [rejected(text)]
    assert client.transport.producerState == "producing"


def test_client_that_does_not_read_is_cut(world: CableWorld) -> None:
    """It is cut although kas has stopped reading its commands."""
    client = world.welcomed()
    client.unread = MAX_UNSENT_BYTES
    for _ in range(MAX_QUEUED_COMMANDS + 1):
        client.command("unsubscribe", identifier())
    assert client.transport.producerState == "paused"
    for _ in range(int(UNREAD_SECONDS) + 1):
        # Pings of kas wait, too.
        client.unread += len(client.transport.value())
        client.transport.clear()
        world.clock.advance(1)
    assert client.cut()


def test_long_identifier(world: CableWorld) -> None:
    """One that is too long is rejected."""
    client = world.welcomed()
    for size, kind in ((0, "confirm"), (1, "reject")):
        text = identifier(x="")
        text = identifier(x="x" * (MAX_IDENTIFIER - len(text) + size))
        client.subscribe(text)
        assert client.seen()[0]["type"] == f"{kind}_subscription"


# Credentials


@pytest.mark.parametrize("status", [401, 403, 404])
def test_unauthorized(world: CableWorld, status: int) -> None:
    """A refused credential ends the connection for good."""
    error = {
        401: Status.UNAUTHENTICATED,
        403: Status.PERMISSION_DENIED,
        404: Status.NOT_FOUND,
    }[status]
    world.api.users.authorize = lambda *_: _raise(CallError(error, "no"))
    client = world.connect("user:prod:wrong")
    assert client.seen() == [UNAUTHORIZED, CLOSED]


def _raise(error: Exception) -> Any:
    raise error


def test_cannot_be_checked(world: CableWorld) -> None:
    """The client comes back, because its credential may be good."""
    world.api.users.authorize = lambda *_: _raise(CallError(Status.UNAVAILABLE, "no"))
    assert world.connect().seen() == [REMOTE, CLOSED]
    for waits in (Deferred, stubborn):
        world.api.users.authorize = lambda *_, waits=waits: waits()
        client = world.connect()
        world.clock.advance(CALL_SECONDS)
        assert client.seen() == [REMOTE, CLOSED]


def test_client_leaves_while_checked(world: CableWorld) -> None:
    """The check is cancelled."""
    cancelled: list[Any] = []
    world.api.users.authorize = lambda *_: Deferred(cancelled.append)
    client = world.connect()
    client.subscribe(identifier())
    client.lose()
    assert len(cancelled) == 1
    assert world.channel.calls == []
    assert world.timers() == []


def test_first_message(world: CableWorld) -> None:
    """A client without a credential sends it first."""
    client = world.connect("")
    assert client.seen() == []
    client.command("authenticate", token="user:prod:secret")
    assert client.seen() == [{"type": "welcome"}]
    client.command("authenticate", token="user:prod:secret")
    assert client.seen() == [INVALID, CLOSED]


@pytest.mark.parametrize("token", ["user:prod:wrong", "\n", ""])
def test_wrong_first_message(world: CableWorld, token: str) -> None:
    """A wrong token is refused."""
    client = world.connect("")
    client.command("authenticate", token=token)
    assert client.seen() == [UNAUTHORIZED, CLOSED]


def test_no_credential(world: CableWorld) -> None:
    """Neither a command before the credential, nor silence, is enough."""
    client = world.connect("")
    client.subscribe(identifier())
    assert client.seen() == [UNAUTHORIZED, CLOSED]
    client = world.connect("")
    world.clock.advance(AUTHENTICATE_SECONDS - 0.1)
    assert client.seen() == []
    world.clock.advance(0.2)
    assert client.seen() == [UNAUTHORIZED, CLOSED]


def test_token_without_agent(world: CableWorld) -> None:
    """A channel's agent has to accept it in time."""
    client = world.connect("secret")
    assert client.seen() == [{"type": "welcome"}]
    seen: list[Any] = []
    for _ in range(2):
        world.clock.advance(AUTHORIZE_SECONDS / 2)
        seen = client.seen()
    assert seen[-2:] == [UNAUTHORIZED, CLOSED]
    client = world.subscribed(token="secret")
    asked = Deferred.fromCoroutine(world.channel.subscription.caller.authorize("prod"))
    assert asked.result.agent_id == "7"  # type: ignore[attr-defined]
    for _ in range(20):
        world.clock.advance(PING_SECONDS)
        client.seen()
    assert not client.closing()
    assert world.module._credentials() == {"user:alice"}


def test_channel_says_unauthenticated(world: CableWorld) -> None:
    """The whole connection ends, because every channel would say so."""
    client = world.welcomed()
    world.channel.results["subscribe"] = CallError(Status.UNAUTHENTICATED, "no")
    client.subscribe(identifier())
    assert client.seen() == [UNAUTHORIZED, CLOSED]


def test_revoked(world: CableWorld) -> None:
    """Connections of a revoked credential end at once; others stay."""
    world.api.users.tokens["other"] = world.api.users.tokens["secret"]
    client, other = world.subscribed(), world.subscribed()
    held = world.hub.connections
    assert world.api.users.held[0]() == {"user:alice"}
    for one in held:
        one._caller.credential_ids = {"user:bob"}
        break
    world.pair.server.bus.publish(CredentialRevoked("user:alice"))
    ended = [one for one in (client, other) if one.seen() == [UNAUTHORIZED, CLOSED]]
    assert len(ended) == 1
    assert world.channel.calls.count("unsubscribe") == 1


def test_connections_of_a_credential() -> None:
    """One too many is sent away, and comes back when another has ended."""
    world = CableWorld(max_connections_per_credential=2)
    clients = [world.welcomed() for _ in range(2)]
    assert world.connect("other:prod:secret").seen() == [{"type": "welcome"}]
    assert world.connect().seen() == [REMOTE, CLOSED]
    clients[0].lose()
    world.welcomed()


def test_connections_at_other_workers() -> None:
    """They count, too."""
    world = CableWorld(max_connections_per_credential=2)
    told: list[Any] = []

    class Shared:
        elsewhere: Any = type("All", (), {"__getitem__": lambda *_: 1})()

        def here(self, key: str, amount: int) -> None:
            told.append(amount)

    world.hub.together = Shared()
    client = world.welcomed()
    assert world.connect().seen() == [REMOTE, CLOSED]
    client.lose()
    assert told == [1, 0]


# Snapshots, and clients that are slow


def test_resume(world: CableWorld) -> None:
    """A client that comes back with its tab may resume within 0.2 seconds."""
    text = identifier(tab="t1")
    world.subscribed(text).lose()
    client = world.welcomed()
    client.subscribe(text)
    assert client.seen() == [confirmed(text)]
    client.perform(text, "resume", e=1, s=2)
    assert client.seen() == [sent(text, {"since": {"e": 1, "s": 2}})]
    world.clock.advance(RESUME_SECONDS)
    assert client.seen() == []
    # The state that the client has is already newer.
    client.perform(text, "resume", e=1, s=2)
    assert client.seen() == []


def test_not_resumed(world: CableWorld) -> None:
    """After 0.2 seconds, the snapshot comes, and a late resume changes nothing."""
    text = identifier(tab="t1")
    world.subscribed(text).lose()
    client = world.welcomed()
    client.subscribe(text)
    world.clock.advance(RESUME_SECONDS - 0.01)
    world.channel.subscription.send({"dropped": "the snapshot has it"})
    assert client.seen() == [confirmed(text)]
    world.clock.advance(0.02)
    assert client.seen() == [sent(text, {"snapshot": 2})]
    client.perform(text, "resume", e=1, s=2)
    assert client.seen() == []


def test_not_resumable(world: CableWorld) -> None:
    """A new tab, another credential, or a client that unsubscribed does not wait."""
    text = identifier(tab="t1")
    client = world.subscribed(text)
    client.command("unsubscribe", text)
    client.subscribe(text)
    assert len(client.seen()) == 2
    world.api.users.tokens["more"] = world.api.users.tokens["secret"]
    world.subscribed(text, token="user:prod:more")
    world.subscribed(identifier(tab="t2"))
    world.subscribed(identifier())
    world.subscribed(identifier())


def test_remembered(world: CableWorld) -> None:
    """kas remembers a limited number of subscriptions."""
    for number in range(MAX_RESUMABLE + 1):
        assert not world.hub.resumable(f"{number}")
    assert not world.hub.resumable("0")
    assert world.hub.resumable(f"{MAX_RESUMABLE}")


def test_repeated_while_waiting_for_resume(world: CableWorld) -> None:
    """A repeated subscribe gets one snapshot."""
    text = identifier(tab="t1")
    world.subscribed(text).lose()
    client = world.welcomed()
    client.subscribe(text)
    client.subscribe(text)
    assert len([one for one in client.seen() if "message" in one]) == 1
    world.clock.advance(RESUME_SECONDS)
    assert client.seen() == []


def test_slow_client(world: CableWorld) -> None:
    """Keyed messages: the latest one wins; others are replaced by a snapshot."""
    keyed, plain = identifier(id="keyed"), identifier(id="plain")
    client = world.subscribed(keyed)
    one = world.channel.subscription
    client.subscribe(plain)
    two = world.channel.subscription
    client.seen()
    client.unread = MAX_UNSENT_BYTES
    for number in range(3):
        one.send({"n": number}, key="a")
        one.send({"m": number}, key="b")
        two.send({"n": number})
    assert client.seen() == []
    assert world.hub.metrics.behind == 1
    client.unread = 0
    client.protocol.resumeProducing()
    assert client.seen() == [
        sent(keyed, {"n": 2}),
        sent(keyed, {"m": 2}),
        sent(plain, {"snapshot": 3}),
    ]
    two.send({"n": 4})
    assert client.seen() == [sent(plain, {"n": 4})]


def test_slow_client_is_noticed_by_time(world: CableWorld) -> None:
    """Without a word from the transport, kas looks with each ping."""
    client = world.subscribed()
    client.unread = MAX_UNSENT_BYTES
    world.channel.subscription.send({"n": 1}, key="a")
    client.unread = MAX_UNSENT_BYTES - 1
    world.clock.advance(PING_SECONDS)
    assert client.seen()[-1] == sent(identifier(), {"n": 1})


def test_pending(world: CableWorld) -> None:
    """Too many latest messages become a snapshot."""
    client = world.subscribed()
    subscription = world.channel.subscription
    client.unread = MAX_UNSENT_BYTES
    part = "x" * (MAX_PENDING_BYTES // 4)
    for number in range(4):
        subscription.send({"n": part}, key=str(number))
    assert world.hub.metrics.behind == 1
    (connection,) = world.hub.connections
    assert connection.pending_bytes == 0
    client.unread = 0
    client.protocol.resumeProducing()
    assert client.seen() == [sent(identifier(), {"snapshot": 2})]


def test_snapshots_one_by_one(world: CableWorld) -> None:
    """A snapshot begins when the one before it has ended and the client has room."""
    client = world.welcomed()
    world.channel.results["send_snapshot"] = first = Waiting()
    client.subscribe(identifier(id=1))
    client.subscribe(identifier(id=2))
    assert world.channel.snapshots == 1
    client.unread = MAX_UNSENT_BYTES
    world.channel.results.clear()
    first.callback(None)
    assert world.channel.snapshots == 1
    client.unread = 0
    client.protocol.resumeProducing()
    assert world.channel.snapshots == 2


def test_large_snapshot(world: CableWorld) -> None:
    """A snapshot may be larger than the limit for changes; there is a limit, too."""
    client = world.welcomed()
    world.channel.state = "x" * (2 * MAX_UNSENT_BYTES)
    client.subscribe(identifier())
    assert len(client.seen()) == 2
    assert not client.cut()
    world.channel.state = "x" * MAX_SNAPSHOT_BYTES
    with capturedLogs() as events:
        client.subscribe(identifier())
    assert client.seen() == [confirmed(identifier()), rejected(identifier())]
    assert events[-1]["log_failure"].check(ValueError)


def test_snapshot_in_parts(world: CableWorld) -> None:
    """All parts together are limited."""
    client = world.subscribed()
    subscription = world.channel.subscription

    def parts(_: Any) -> None:
        for _ in range(3):
            subscription.send("x" * (MAX_SNAPSHOT_BYTES // 2 - 10))

    vars(world.channel)["send_snapshot"] = parts
    with capturedLogs():
        client.subscribe(identifier())
    assert client.seen()[-1] == rejected(identifier())


def test_reads_nothing(world: CableWorld) -> None:
    """A client that reads nothing for 30 seconds is cut, and its channels know."""
    client = world.subscribed()
    # It does not answer pings of the WebSocket, either.
    for _ in range(int(UNREAD_SECONDS)):
        assert not client.cut()
        world.clock.advance(1)
    assert client.cut()
    assert world.channel.calls[-1] == "unsubscribe"
    assert world.timers() == []


# Channels that come and go


def test_channel_is_replaced(world: CableWorld) -> None:
    """Subscriptions move to the new channel, and get its snapshot."""
    client = world.subscribed()
    subscription = world.channel.subscription
    other = FakeChannel()
    other.snapshots = 100
    world.cable.serve("TestChannel", other)
    assert client.seen() == [sent(identifier(), {"snapshot": 101})]
    assert world.channel.calls[-1] == "unsubscribe"
    assert other.subscription is subscription
    # The earlier module stops after that.
    world.withdraw()
    subscription.send({"n": 1})
    assert client.seen() == [sent(identifier(), {"n": 1})]


def test_channel_is_withdrawn(world: CableWorld) -> None:
    """Subscriptions wait; a new one is answered when the channel is back."""
    client = world.subscribed()
    world.withdraw()
    assert world.channel.calls[-1] == "unsubscribe"
    world.channel.subscription.send({"n": 1})
    client.subscribe(identifier(id=2))
    client.perform(identifier(), "act")
    assert client.seen() == []
    world.cable.serve("TestChannel", FakeChannel())
    client.subscribe(identifier(id=2))
    seen = client.seen()
    assert seen[0] == sent(identifier(), {"snapshot": 1})
    assert seen[1] == confirmed(identifier(id=2))


def test_new_channel_refuses(world: CableWorld) -> None:
    """The subscription ends."""
    client = world.subscribed()
    other = FakeChannel()
    other.results["subscribe"] = denied()
    world.cable.serve("TestChannel", other)
    assert client.seen() == [rejected(identifier())]


def test_not_a_channel(world: CableWorld) -> None:
    """An object that lacks a method is refused when it is served."""
    with pytest.raises(ValueError, match="X is not an IChannel"):
        world.cable.serve("X", object())


# The end


def test_drain(world: CableWorld) -> None:
    """Connections end at different times, each with a word to come back."""
    early, late = world.subscribed(), world.subscribed()
    values: Sequence[float] = (0.1, 0.9)
    numbers = iter(values)
    world.hub.random = lambda: next(numbers)
    world.factory.drain(100.0)
    clients = [early, late]
    world.clock.advance(SPREAD_SECONDS * 0.1 + 0.01)
    ended = [one for one in clients if RESTART in one.seen()]
    assert len(ended) == 1
    world.clock.advance(SPREAD_SECONDS * 0.8)
    for one in clients:
        one.seen()
        assert not ended or one.core.close_rcvd
        one.lose()
    assert world.factory.unfinished == 0


def test_short_drain(world: CableWorld) -> None:
    """All end before kas cuts them."""
    client = world.welcomed()
    world.hub.random = lambda: 1.0
    world.factory.drain(5.0)
    world.clock.advance(5.0 * 0.8)
    assert client.seen()[-2:] == [RESTART, CLOSED]


def test_module_stops(world: CableWorld) -> None:
    """Clients see the close of a restart, and come back by themselves."""
    client = world.subscribed()
    world.pair.stop()
    assert client.seen() == [(1012, "the module stops")]
    assert world.channel.calls[-1] == "unsubscribe"
    assert world.hub.connections == set()
    client.lose()
    assert world.timers() == []


def test_started_event() -> None:
    """Other modules learn that they can serve channels again."""
    world = CableWorld()
    heard: list[Any] = []
    world.api.events.subscribe(CableStarted, heard.append)
    Deferred.fromCoroutine(world.module.stop())
    Deferred.fromCoroutine(world.module.start())
    assert heard == [CableStarted()]


def test_metrics(world: CableWorld) -> None:
    """Connections, subscriptions by channel, commands, messages and ends."""
    client: CableClient = world.subscribed()
    client.subscribe(identifier("Unknown"))
    client.command("later")
    world.connect("user:prod:wrong")
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in world.hub.metrics.collect()
        for sample in metric.samples
    }
    assert values["kas_action_cable_connections",] == 1
    assert values["kas_action_cable_subscriptions", "TestChannel"] == 1
    assert values["kas_action_cable_commands_total", "subscribe"] == 2
    assert values["kas_action_cable_commands_total", "other"] == 1
    assert values["kas_action_cable_messages_total",] == 1
    assert values["kas_action_cable_rejections_total",] == 1
    assert values["kas_action_cable_disconnects_total", "unauthorized"] == 1


def test_protocol_texts(world: CableWorld) -> None:
    """The texts are valid JSON without spaces, as Rails writes them."""
    client = world.connect()
    client.subscribe(identifier())
    for text in client.read():
        assert text == json.dumps(json.loads(text), separators=(",", ":"))


def _flood(client: CableClient, count: int, begin: int = 0) -> None:
    for number in range(begin, begin + count):
        client.command("message", f"unknown {number}", data="{}")


def test_commands_of_a_user_are_limited(world: CableWorld) -> None:
    """A flood on several connections, with several tokens, is read slowly."""
    world.api.users.tokens["another"] = Access("user:alice", "7", "prod")
    clients = [world.welcomed(), world.welcomed(token="user:prod:another")]
    commands = world.hub.metrics.commands
    for client in clients:
        _flood(client, COMMANDS_AT_ONCE)
    # Each connection reads one command until it knows.
    assert commands["message"] <= COMMANDS_AT_ONCE + 1
    for _ in range(40):
        world.clock.advance(0.25)
        for client in clients:
            client.seen()
    handled = commands["message"] - COMMANDS_AT_ONCE
    assert 0.8 <= handled / (10 * COMMANDS_PER_SECOND) <= 1.1
    # Another user does not wait.
    world.api.users.tokens["bobs"] = Access("user:bob", "7", "prod")
    bob = world.welcomed(token="user:prod:bobs")
    bob.subscribe(identifier())
    assert bob.seen()[0] == confirmed(identifier())
    for client in (*clients, bob):
        client.lose()
    assert world.timers() == []


def test_repeated_subscribes_are_limited(world: CableWorld) -> None:
    """kas ignores them, and reading them takes time, too."""
    waiting: Waiting = Deferred()
    world.channel.results["subscribe"] = waiting
    client = world.welcomed()
    for _ in range(20 * COMMANDS_AT_ONCE):
        client.subscribe(identifier())
    assert client.transport.producerState == "paused"
    world.clock.advance(1)
    waiting.callback(None)
    assert client.seen()[0]["type"] in ("ping", "confirm_subscription")
