"""What kas say to each other beside streams, and what is told of it as metrics."""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from zope.interface.verify import verifyObject

from kas.agents.registry import AgentConnection, Registry
from kas.config.own_address import OwnAddress
from kas.config.schema import read_configuration
from kas.directory.directory import Directory
from kas.directory.records import KasRecord
from kas.fleet import tokens as tokens_module
from kas.fleet.balance import Balance
from kas.fleet.credentials import CHECK_INTERVAL
from kas.fleet.fleet import Fleet
from kas.fleet.gateway import GatewayFactory
from kas.fleet.peers import PEER_TIMING
from kas.fleet.tokens import _proof
from kas.identity.jwt import LEEWAY, sign
from kas.modules.peers import ModulePeers
from kas.observability.fleet_metrics import FleetCollector
from kas.routing.router import Router
from kas.state import pki
from kas.state.directory import StateDirectory
from tests.kas.directory.memory import Hub, MemoryStore
from tests.kas.many import Network
from tests.kas.world import World
from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tunnel.api import (
    AgentConnected,
    AgentDisconnected,
    ConnectedAgent,
    IPeers,
    OtherKas,
)
from tunnel.errors import CallError, ConfigurationError, SessionClosed, Status
from tunnel.hosting.events import EventBus
from tunnel.hosting.scope import ModuleScope
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.listening import Listening
from tunnel.program.runtime import Runtime
from tunnel.session.factory import TunnelFactory
from tunnel.session.keepalive import Keepalive
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.transport.tls import client_context
from tunnel.transport.tlsio import TLSConnection, wrap_client
from tunnel.util.flusher import Flusher

ECHO = DESCRIPTOR.services_by_name["Echo"]

_PRIVATE = """\
private_api:
  listen: {{address: "127.0.0.1:{port}", {more}authentication_secret_file: {secret}}}
"""
_REDIS = "redis: {server: {address: '127.0.0.1:1'}}\n"


class _Ports:
    """Listens in memory."""

    def __init__(self) -> None:
        self.factories: list[Any] = []

    async def listen(self, settings: Any, factory: Any, **named: Any) -> Any:
        self.factories.append(factory)


class Kas:
    """One kas without listeners: its fleet, over pipes."""

    def __init__(
        self, net: Network, number: int, text: str, state: Path | None = None
    ) -> None:
        self.net = net
        self.clock = net.clock
        self.registry = Registry()
        self.bus = EventBus()
        #: Seconds by which the time of day is wrong.
        self.clock_error = 0.0
        reactor: Any = MemoryReactorClock()
        reactor.callLater = self.clock.callLater
        reactor.seconds = self.clock.seconds
        self.fleet = Fleet(
            read_configuration(text, "kas.yaml"),
            self.registry,
            Runtime(
                reactor=reactor,
                now=lambda: self.clock.seconds() + self.clock_error,
                random=lambda: 0.5,
                environ={},
                instance_id=bytes([number]) * 16,
                flusher=Flusher(self.clock),
                keepalive=Keepalive(self.clock),
                bus=self.bus,
            ),
            lambda: ["127.0.0.1"],
            lambda: pki.ensure(StateDirectory.open(state or Path()), time.time, "kas"),
        )
        self.ports = _Ports()

    def start(self) -> None:
        """Listen; the directory is one in memory."""
        fleet = self.fleet
        started = Deferred.fromCoroutine(fleet.start(cast(Listening, self.ports)))
        assert started.called
        if fleet.peers is not None:
            fleet.peers.endpoint = self.net.door
            self.net.listeners[fleet._me.url] = self.ports.factories[0]

    def agent(self, agent_id: str, generation: int = 1, project_id: int = 0) -> Any:
        """An agent connects here."""
        tunnel = World(clock=self.clock).agent().there
        agent = ConnectedAgent(
            agent_id, agent_id, b"i" * 16, generation, 0.0, project_id=project_id
        )
        self.registry.add(AgentConnection(tunnel, agent, f"agent:{agent_id}"))
        self.bus.publish(AgentConnected(agent))
        return agent


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(base64.b64encode(os.urandom(32)).decode())
    return path


@pytest.fixture
def net() -> Network:
    return Network(Clock())


def pair(net: Network, secret: Path, other: Path | None = None) -> list[Kas]:
    """Two kas that know each other."""
    both = []
    for number, file in ((1, secret), (2, other or secret)):
        text = _PRIVATE.format(port=8000 + number, more="", secret=file)
        kas = Kas(net, number, text)
        kas.start()
        both.append(kas)
    for one, two in (both, both[::-1]):
        one.fleet.directory.seen(two.fleet._me)
    return both


def dial_all(kas: Kas) -> None:
    """As an operator who asks after the others."""
    done: list[Any] = []
    Deferred.fromCoroutine(kas.fleet.dial_all(2.0)).addBoth(done.append)
    for seconds in (0.0, *[0.5] * 6):
        kas.net.settle()
        kas.clock.advance(seconds)
    assert done == [None]


def test_dialled_without_need(net: Network, secret: Path) -> None:
    """Whether others are reached is known before a request needs them."""
    one, two = pair(net, secret)
    dial_all(one)
    assert one.fleet.peers is not None
    assert one.fleet.peers.at(two.fleet._me.url).alive
    dial_all(one)
    assert two.fleet.gateway is not None
    assert len(two.fleet.gateway.tunnels) == 1


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_wrong_clock_shows_on_both_sides(
    net: Network, secret: Path, seconds: float
) -> None:
    right, wrong = pair(net, secret)
    net.clock.advance(7200)
    wrong.clock_error = seconds
    dial_all(wrong)
    assert wrong.fleet.peers is not None
    problem = wrong.fleet.peers.at(right.fleet._me.url).problem
    assert "check the clocks" in problem
    assert wrong.fleet.gateway is not None
    assert wrong.fleet.gateway.refusal == ""
    dial_all(right)
    assert "check the clocks" in wrong.fleet.gateway.refusal
    # It is forgotten once one is taken.
    wrong.clock_error = 0.0
    net.clock.advance(60)
    dial_all(right)
    assert wrong.fleet.gateway.refusal == ""


def ask(kas: Kas, agent_id: str) -> list[Any]:
    """What the others say of an agent."""
    got: list[Any] = []
    fleet = kas.fleet
    asking = Deferred.fromCoroutine(fleet.ask(agent_id, fleet.directory.peers()))
    asking.addBoth(got.append)
    for seconds in (0.0, *[0.5] * 20):
        if not got:
            kas.net.settle()
            kas.clock.advance(seconds)
    return list(got[0])


def test_asking_each_other(net: Network, secret: Path) -> None:
    one, two = pair(net, secret)
    two.agent("7")
    two.agent("8")
    (found,) = ask(one, "7")
    assert (found.agent.agent_id, found.kas_url) == ("7", "tcp://127.0.0.1:8002")
    # The session stays, and so does what was heard of them.
    assert len(ask(one, "8")) == 1
    assert ask(one, "9") == []
    (peer,) = one.fleet.directory.peers()
    assert peer.agents == 2
    assert len(net.pipes) == 1


def test_agents_that_leave_are_not_told(net: Network, secret: Path) -> None:
    one, two = pair(net, secret)
    two.agent("7")
    (connection,) = two.registry
    two.registry.retire(connection.tunnel)
    assert ask(one, "7") == []


def test_by_project(net: Network, secret: Path) -> None:
    _, two = pair(net, secret)
    two.agent("7", project_id=1)
    two.agent("8", project_id=2)
    from kas.pb import directory_pb2

    got: list[Any] = []
    request = directory_pb2.FindRequest(project_id=2)
    asking = Deferred.fromCoroutine(two.fleet.find(request, None))
    asking.addCallback(got.append)
    assert [one.agent_id for one in got[0].agents] == ["8"]


def test_who_is_not_there_counts_as_none(net: Network, secret: Path) -> None:
    one, two = pair(net, secret)
    two.agent("7")
    del net.listeners[two.fleet._me.url]
    assert ask(one, "7") == []
    # It is not dialled for each of them.
    dialled = one.fleet.peers
    assert dialled is not None and not dialled.at(two.fleet._me.url).worth_trying
    assert ask(one, "7") == []


def test_who_has_another_secret(net: Network, secret: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(base64.b64encode(os.urandom(32)).decode())
    one, two = pair(net, secret, other)
    two.agent("7")
    assert ask(one, "7") == []
    assert two.fleet.gateway is not None and not two.fleet.gateway.tunnels


def test_a_false_peer(net: Network, secret: Path) -> None:
    """A token that a kas handed to another address opens no kas."""
    one, two = pair(net, secret)
    tokens = one.fleet._tokens
    assert tokens is not None and two.fleet._tokens is not None
    handed = tokens.sign("tcp://192.0.2.66:8155").text
    with pytest.raises(CallError, match="for a kas at another address") as caught:
        two.fleet._tokens.verify(handed)
    assert caught.value.status is Status.UNAUTHENTICATED
    dial_all(one)
    assert one.fleet.peers is not None
    assert one.fleet.peers.at(two.fleet._me.url).alive


class Impostor(TunnelOwner):
    """A program without the secret that accepts any kas."""

    def __init__(self, proof: Callable[[pb.Hello], bytes]) -> None:
        self.proof = proof
        self.streams: list[str] = []

    def hello_received(self, tunnel: TunnelProtocol, hello: pb.Hello) -> None:
        tunnel.welcome(
            pb.Welcome(timing=PEER_TIMING.message(), proof=self.proof(hello))
        )

    def stream_opened(self, stream: Any, open_: pb.Open) -> Any:
        self.streams.append(open_.method)
        return super().stream_opened(stream, open_)

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> None:
        """Nothing to do."""


def _guess(hello: pb.Hello) -> bytes:
    claims = json.loads(
        base64.urlsafe_b64decode(hello.credential.split(b".")[1] + b"==")
    )
    return _proof(b"x" * 32, claims["jti"], claims["aud"][1])


@pytest.mark.parametrize(
    "proof",
    [
        pytest.param(lambda hello: b"", id="none"),
        pytest.param(lambda hello: hello.credential, id="token"),
        pytest.param(_guess, id="other-secret"),
    ],
)
@pytest.mark.parametrize("user", ["directory", "module"])
def test_an_impostor_gets_no_stream(
    net: Network, secret: Path, proof: Callable[[pb.Hello], bytes], user: str
) -> None:
    """
    Neither a stream to an agent nor a call, whoever opens it: all of them use the same
    sessions.
    """
    one, two = pair(net, secret)
    impostor = Impostor(proof)
    net.listeners[two.fleet._me.url] = TunnelFactory(
        impostor,
        timing=PEER_TIMING,
        clock=net.clock,
        flusher=one.fleet.runtime.flusher,
        keepalive=one.fleet.runtime.keepalive,
    )
    if user == "directory":
        assert ask(one, "7") == []
    else:
        modules, _ = peers_of(one)
        (other,) = modules.others()
        got: list[Any] = []
        Deferred.fromCoroutine(modules.client(other, ECHO)).addBoth(got.append)
        for seconds in (0.0, *[0.5] * 4):
            net.settle()
            net.clock.advance(seconds)
        assert got[0].check(CallError)
        assert "did not prove" in str(got[0].value)
    assert one.fleet.peers is not None
    peer = one.fleet.peers.at(two.fleet._me.url)
    assert (peer.alive, impostor.streams) == (False, [])


def test_a_proof_is_for_one_token_and_one_address() -> None:
    proofs = {
        _proof(secret, token_id, url)
        for secret in (b"a" * 32, b"b" * 32)
        for token_id, url in (("1", "tls://a"), ("2", "tls://a"), ("1t", "ls://a"))
    }
    assert len(proofs) == 6


def test_a_secret_is_being_replaced(net: Network, secret: Path, tmp_path: Path) -> None:
    """The dialled kas proves itself with the secret that the dialler uses."""
    new = tmp_path / "new"
    new.write_text(base64.b64encode(os.urandom(32)).decode())
    both = []
    for number, files in ((1, (secret, new)), (2, (new, secret))):
        more = f"accepted_secret_files: [{files[1]}], "
        text = _PRIVATE.format(port=8000 + number, more=more, secret=files[0])
        both.append(Kas(net, number, text))
        both[-1].start()
    for one, two in (both, both[::-1]):
        one.fleet.directory.seen(two.fleet._me)
        dial_all(one)
        assert one.fleet.peers is not None
        assert one.fleet.peers.at(two.fleet._me.url).alive


def test_a_replaced_secret_ends_sessions(
    net: Network, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At both ends, also a session that its listener is leaving."""
    one, two = pair(net, secret)
    dial_all(one)
    dial_all(two)
    assert one.fleet.gateway is not None and one.fleet.peers is not None
    (inbound,) = one.fleet.gateway.tunnels
    outbound = one.fleet.peers.at(two.fleet._me.url)
    assert outbound.tunnel is not None
    left = outbound.tunnel
    ended: list[tuple[TunnelProtocol, str]] = []
    monkeypatch.setattr(
        TunnelProtocol, "end", lambda one, code, text: ended.append((one, text))
    )
    outbound.go_away_received(left, pb.GoAway())
    net.clock.advance(CHECK_INTERVAL)
    assert ended == []
    secret.write_text(base64.b64encode(os.urandom(32)).decode())
    net.clock.advance(CHECK_INTERVAL)
    text = "the secret of private_api was replaced"
    assert {one for one, _ in ended} > {inbound, left}
    assert [why for _, why in ended] == [text] * 4  # Both ends of both sessions.


def test_a_session_of_a_replaced_secret(net: Network, secret: Path) -> None:
    """It ends, and both kas open another one with the new secret."""
    one, two = pair(net, secret)
    dial_all(one)
    assert one.fleet.peers is not None and two.fleet.gateway is not None
    (before,) = two.fleet.gateway.tunnels
    secret.write_text(base64.b64encode(os.urandom(32)).decode())
    net.clock.advance(CHECK_INTERVAL)
    net.settle()
    dial_all(one)
    (after,) = two.fleet.gateway.tunnels
    assert after is not before
    assert one.fleet.peers.at(two.fleet._me.url).alive


def _tls_connection(context: ssl.SSLContext) -> TLSConnection:
    """A connection that trusts the CAs of *context*."""
    layers = wrap_client(Factory(), context, "kas", Clock())
    connection: Any = layers.buildProtocol(IPv4Address("TCP", "192.0.2.1", 1))
    assert isinstance(connection, TLSConnection)
    connection._tls = context.wrap_bio(
        ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="kas"
    )
    return connection


@pytest.mark.parametrize(
    "setting", ["ca_certificate_file", "client_ca_certificate_file"]
)
def test_a_removed_authority_ends_sessions(
    net: Network,
    secret: Path,
    tmp_path: Path,
    setting: str,
) -> None:
    """A further CA ends none."""
    old, new = (
        Path(str(pki.ensure(StateDirectory.open(tmp_path / n), time.time, n).ca_file))
        for n in ("old", "new")
    )
    file = tmp_path / "ca.pem"
    file.write_text(old.read_text())
    more = f"{setting}: {file}, certificate_file: {tmp_path}/old/server.crt, "
    more += f"key_file: {tmp_path}/old/server.key, "
    kas = Kas(net, 1, _PRIVATE.format(port=1, more=more, secret=secret))
    kas.start()
    assert kas.fleet.gateway is not None and kas.fleet._tokens is not None
    credentials = kas.fleet.gateway.credentials
    agent = World(clock=net.clock).agent()
    tunnel, transport = agent.there, agent.there.transport
    tunnel.transport = _tls_connection(client_context(str(file), system_pool=False))
    by_us = setting == "ca_certificate_file"
    token = kas.fleet._tokens.sign("tls://127.0.0.1:2")
    credentials.opened(tunnel, token, by_us=by_us)
    tunnel.transport = transport
    for content, expected in (
        (old.read_text() + new.read_text(), []),
        ("nonsense", []),
        (new.read_text(), ["a CA of the kas was removed"]),
    ):
        file.write_text(content)
        net.clock.advance(CHECK_INTERVAL)
        agent.pipe.flush()
        assert [str(closed) for closed in agent.closed] == expected


@pytest.mark.parametrize(
    ("own", "peer", "problem"),
    [
        ("tls://127.0.0.1:1", "unix:///tmp/evil.sock", "is a socket"),
        ("tcp://127.0.0.1:1", "unix:///tmp/evil.sock", "is a socket"),
        ("tls://127.0.0.1:1", "tcp://127.0.0.1:2", "has no TLS"),
        ("grpcs://127.0.0.1:1", "tcp://127.0.0.1:2", "has no TLS"),
        ("grpcs://127.0.0.1:1", "grpc://127.0.0.1:2", "has no TLS"),
        ("tls://127.0.0.1:1", "unix:///run/2.peer", ""),
        ("tls://127.0.0.1:1", "tls://127.0.0.1:2", ""),
        ("unix:///run/1.sock", "unix:///run/3.sock", ""),
    ],
)
def test_addresses_that_are_not_dialled(
    net: Network, secret: Path, own: str, peer: str, problem: str
) -> None:
    """Sockets are for workers of this kas, and TLS is not optional."""
    kas = Kas(net, 1, _PRIVATE.format(port=1, more="", secret=secret))
    kas.fleet._own = OwnAddress(own)
    kas.fleet.sibling_urls = ("unix:///run/2.peer",)
    if problem:
        with pytest.raises(ConfigurationError, match=problem):
            kas.fleet._endpoint(peer)
    else:
        assert kas.fleet._endpoint(peer) is not None


def test_a_token_twice(net: Network, secret: Path) -> None:
    """Each kas accepts a token once, and remembers it for as long as it is valid."""
    one, two = pair(net, secret)
    tokens, theirs = one.fleet._tokens, two.fleet._tokens
    assert tokens is not None and theirs is not None
    token = tokens.sign(two.fleet._me.url).text
    theirs.verify(token)
    for seconds in (0, 4, LEEWAY - 1):
        net.clock.advance(seconds)
        with pytest.raises(CallError, match="was used before"):
            theirs.verify(token)
    net.clock.advance(10)
    with pytest.raises(CallError, match="expired"):
        theirs.verify(token)
    # Two of the same second differ.
    for _ in range(2):
        theirs.verify(tokens.sign(two.fleet._me.url).text)
    assert len(theirs._used) == 2


def test_used_tokens_are_bounded(
    net: Network, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "MAX_USED", 3)
    one, two = pair(net, secret)
    tokens, theirs = one.fleet._tokens, two.fleet._tokens
    assert tokens is not None and theirs is not None
    for _ in range(3):
        theirs.verify(tokens.sign(two.fleet._me.url).text)
    with pytest.raises(CallError) as caught:
        theirs.verify(tokens.sign(two.fleet._me.url).text)
    assert caught.value.status is Status.RESOURCE_EXHAUSTED
    net.clock.advance(LEEWAY + 10)
    theirs.verify(tokens.sign(two.fleet._me.url).text)
    assert len(theirs._used) == 1


@pytest.mark.parametrize("audience", ["gitlab-kas", ["gitlab-kas"]])
def test_a_token_that_names_no_kas(
    net: Network, secret: Path, audience: str | list[str]
) -> None:
    """A token names the kas that it is for, always."""
    _, two = pair(net, secret)
    theirs = two.fleet._tokens
    assert theirs is not None
    token = sign(
        theirs._secrets,
        issuer="gitlab-kas",
        audience=audience,
        now=net.clock.seconds(),
    ).encode()
    with pytest.raises(CallError, match="is for a kas at another address"):
        theirs.verify(token)


def test_who_does_not_answer_in_time(net: Network, secret: Path) -> None:
    one, two = pair(net, secret)
    two.agent("7")
    ask(one, "7")
    for _, pipe in net.pipes:
        pipe.cut = True
    assert ask(one, "7") == []


def test_ours_in_the_directory(net: Network, secret: Path) -> None:
    one, _ = pair(net, secret)
    hub = Hub()
    store = MemoryStore(hub, one.fleet._me)
    one.fleet.directory = Directory(
        one.fleet._me,
        store,
        one.fleet.runtime,
        on_superseded=one.fleet._superseded,
    )
    Deferred.fromCoroutine(one.fleet.directory.start())
    agent = one.agent("7")
    assert [key[0] for key in hub.records] == ["7"]
    assert store.me.agents == 1
    one.fleet.update(draining=True)
    one.fleet.update()
    assert store.me.draining
    # A newer connection elsewhere ends what is here.
    newer = attrs.evolve(agent, generation=2)
    record = attrs.evolve(
        one.fleet._record(newer), kas_id=b"2" * 16, kas_url="tcp://elsewhere:1"
    )
    store.listener.events([record], [])
    assert len(one.registry) == 0
    assert hub.records == {}
    other = one.agent("8")
    one.bus.publish(AgentDisconnected(other))
    assert hub.records == {}
    stopped = Deferred.fromCoroutine(one.fleet.stop())
    assert stopped.called
    for call in one.clock.getDelayedCalls():
        call.cancel()


def test_alone() -> None:
    net = Network(Clock())
    kas = Kas(net, 1, "")
    kas.start()
    kas.agent("7")
    assert kas.fleet.directory.peers() == []
    assert kas.fleet.peers is None and kas.fleet.gateway is None
    assert Deferred.fromCoroutine(kas.fleet.stop()).called


def test_a_secret_is_needed(net: Network, tmp_path: Path) -> None:
    text = "private_api: {listen: {address: '127.0.0.1:1'}}\n"
    with pytest.raises(ConfigurationError, match="authentication_secret_file"):
        Kas(net, 1, text)
    short = tmp_path / "short"
    short.write_text("c2hvcnQ=")
    with pytest.raises(ConfigurationError, match=r"private_api\.listen"):
        Kas(net, 1, _PRIVATE.format(port=1, more="", secret=short))


def test_tls_between_kas(net: Network, secret: Path, tmp_path: Path) -> None:
    more = "development_certificate: true, "
    text = _PRIVATE.format(port=1, more=more, secret=secret)
    kas = Kas(net, 1, text, tmp_path / "state")
    assert kas.fleet._me.url == "tls://127.0.0.1:1"
    assert kas.fleet._endpoint("tls://127.0.0.1:2") is not None
    ours = kas.fleet._tls_context().get_ca_certs()
    assert ["kas" in str(one["subject"]) for one in ours] == [True]


def test_only_the_configured_authorities(
    net: Network, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of a public CA does not make a kas, if the operator names CAs."""
    files = [
        pki.ensure(StateDirectory.open(tmp_path / name), time.time, name)
        for name in ("ours", "public")
    ]
    monkeypatch.setenv("SSL_CERT_FILE", str(files[1].ca_file))
    for more, trusted in (
        (f"ca_certificate_file: {files[0].ca_file}, ", files[0]),
        ("", files[1]),
    ):
        kas = Kas(net, 1, _PRIVATE.format(port=1, more=more, secret=secret))
        pem = Path(str(trusted.ca_file)).read_text()
        found = kas.fleet._tls_context().get_ca_certs(binary_form=True)
        assert found == [ssl.PEM_cert_to_DER_cert(pem)]


def test_a_broken_certificate_is_said_at_once(
    net: Network, secret: Path, tmp_path: Path
) -> None:
    more = "development_certificate: true, "
    text = _PRIVATE.format(port=1, more=more, secret=secret)
    state = tmp_path / "state"
    Kas(net, 1, text, state)
    (state / "ca.crt").write_text("nonsense")
    with pytest.raises(ConfigurationError, match=r"ca\.crt"):
        Kas(net, 1, text, state)


def metrics(kas: Kas) -> dict[str, float]:
    """What is told."""
    registry = CollectorRegistry()
    fleet = kas.fleet
    router = Router(kas.registry, fleet.directory, fleet.runtime, peers=fleet.peers)
    balance = Balance(kas.registry, fleet.directory, fleet.runtime)
    registry.register(FleetCollector(fleet, router, balance))
    lines = generate_latest(registry).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line[:1] != "#")
    return {name: float(value) for name, _, value in pairs}


def test_metrics_of_several(net: Network, secret: Path) -> None:
    one, two = pair(net, secret)
    ask(one, "7")
    seen = metrics(one)
    assert (seen["kas_peers"], seen["kas_peer_sessions"]) == (1, 1)
    assert seen['kas_gateway_requests_total{outcome="relayed"}'] == 0
    assert seen['kas_resumable_paths_total{event="lost"}'] == 0
    assert seen["kas_directory_answers"] == 0
    assert isinstance(two.ports.factories[0], GatewayFactory)


def test_a_record_with_redis(net: Network, secret: Path) -> None:
    text = _PRIVATE.format(port=1, more="", secret=secret) + _REDIS
    kas = Kas(net, 1, text)
    assert kas.fleet.redis is not None
    assert isinstance(kas.fleet.directory.me, KasRecord)


def test_metrics_of_one_alone() -> None:
    kas = Kas(Network(Clock()), 1, "")
    seen = metrics(kas)
    assert "kas_peers" not in seen
    assert seen["kas_agents_moved_total"] == 0


class Echo:
    """A module's service for other kas."""

    async def say(self, request: Text, call: Any) -> Text:
        return Text(text=f"{request.text}!")

    async def spell(self, request: Text, call: Any) -> Any:
        yield request

    async def join(self, requests: Any, call: Any) -> Text:
        return Text()

    async def chat(self, requests: Any, call: Any) -> Any:
        async for request in requests:
            yield request


def peers_of(kas: Kas) -> tuple[ModulePeers, ModuleScope]:
    scope = ModuleScope("echo", None, lambda reason: None)
    return ModulePeers(scope, kas.fleet), scope


def call(kas: Kas, peers: ModulePeers, other: OtherKas, text: str) -> Any:
    """The answer of another kas, or the error."""

    async def ask() -> Any:
        client = await peers.client(other, ECHO)
        return await client.call("Say", Text(text=text), timeout=2.0)

    got: list[Any] = []
    Deferred.fromCoroutine(ask()).addBoth(got.append)
    for seconds in (0.0, *[0.5] * 20):
        if not got:
            kas.net.settle()
            kas.clock.advance(seconds)
    return got[0]


def test_calls_of_modules(net: Network, secret: Path) -> None:
    """Modules of two kas call each other until one of them stops."""
    one, two = pair(net, secret)
    here, _ = peers_of(one)
    there, scope = peers_of(two)
    verifyObject(IPeers, here)
    there.handle(ECHO, Echo())
    (other,) = here.others()
    assert other == OtherKas("tcp://127.0.0.1:8002")
    assert call(one, here, other, "a").text == "a!"
    scope.release()
    assert call(one, here, other, "a").value.status is Status.UNIMPLEMENTED


def test_calls_to_an_absent_kas(net: Network, secret: Path) -> None:
    one, two = pair(net, secret)
    here, _ = peers_of(one)
    del net.listeners[two.fleet._me.url]
    (other,) = here.others()
    for _ in range(2):
        error = call(one, here, other, "a").value
        assert error.status is Status.UNAVAILABLE


def test_calls_without_a_fleet(net: Network) -> None:
    kas = Kas(net, 1, "{}")
    peers, scope = peers_of(kas)
    peers.handle(ECHO, Echo())
    assert peers.others() == []
    scope.release()
