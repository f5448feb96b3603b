"""J02-J04: credentials in places where they do not belong, and taken back."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack

import attrs
import pytest
from twisted.internet.task import Clock

from kas.identity import jwt
from modules.kubernetes_api.fields import METHOD
from tests.faults import clients, followers
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way
from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.transport.tls import ALPN_TUNNEL
from tunnel.wire import events
from tunnel.wire.session import Session

#: What is promised for a credential that is taken back.
REVOKED_SECONDS = 10

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, control_plane: ControlPlane
) -> Iterator[Stage]:
    """Three kas, and the agents ``main`` and ``second``."""
    with Stage(tmp_path_factory.mktemp("access"), control_plane) as stage:
        stage.start()
        stage.agentk(at=[stage.kas[0]])
        stage.add_user_for(["second"])
        stage.fleet.agentk(
            stage.token_of("second"),
            control_plane.agent,
            name="second",
            address=f"tls://127.0.0.1:{stage.kas[1].agents}",
        )
        for user in ("user", "of-second"):
            for kas in stage.kas:
                way = stage.way(kas, user)
                eventually(lambda way=way: stage.answers(way))  # type: ignore[misc]
        yield stage


class Stranger:
    """Our protocol without anything around it; a context manager."""

    def __init__(self, port: int, ca: object) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        context.set_alpn_protocols([ALPN_TUNNEL])
        raw = socket.create_connection(("127.0.0.1", port), 10)
        self.sock = context.wrap_socket(raw, server_hostname="127.0.0.1")
        self.session = Session(dialler=True)

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def until(self, *kinds: type) -> events.Event:
        """Send what there is, and read until one of these events."""
        while True:
            while data := self.session.bytes_to_send():
                self.sock.sendall(data)
            data = self.sock.recv(65536)
            for event in self.session.receive_bytes(data):
                if isinstance(event, (*kinds, events.SessionEnded)):
                    return event
            assert data, "closed without a word"

    def greet(self, role: str, credential: bytes) -> events.Event:
        """The answer to a greeting."""
        self.session.hello(
            pb.Hello(
                role=role,
                credential=credential,
                instance_id=os.urandom(16),
                generation=1,
            )
        )
        return self.until(events.WelcomeReceived)


def _private_token(stage: Stage, audience: str = "gitlab-kas") -> str:
    """Return a token for the first kas, as another kas signs it."""
    url = f"tls://127.0.0.1:{stage.kas[0].private}"
    secret = stage.folder / "private-api-secret"
    return jwt.sign(
        jwt.Secrets(secret, (), clock=Clock()),
        issuer="gitlab-kas",
        audience=[audience, url],
        now=time.time(),
        token_id=secrets.token_hex(16),
    )


def test_audiences(stage: Stage, record: Record) -> None:
    """J02: what opens one door opens no other."""
    kas = stage.kas[0]
    private = _private_token(stage).encode()
    agent = stage.token_of("main").read_text().strip().encode()
    user = stage.way(kas).token.encode()
    tried = {
        "private token on the agent port": (kas.agents, "agent", private),
        "private token and role on the agent port": (kas.agents, "kas", private),
        "user's token on the agent port": (kas.agents, "agent", user),
        "agent's token on the private port": (kas.private, "kas", agent),
        "agent's token and role on the private port": (kas.private, "agent", agent),
        "user's token on the private port": (kas.private, "kas", user),
        "GitLab's token on the private port": (
            kas.private,
            "kas",
            _private_token(stage, "gitlab").encode(),
        ),
    }
    # The same that must fail elsewhere is good where it belongs.
    for port, role, credential in (
        (kas.private, "kas", private),
        (kas.agents, "agent", agent),
    ):
        with Stranger(port, kas.authority) as stranger:
            event = stranger.greet(role, credential)
            assert isinstance(event, events.WelcomeReceived), event
    for what, (port, role, credential) in tried.items():
        with Stranger(port, kas.authority) as stranger:
            event = stranger.greet(role, credential)
        ok = isinstance(event, events.SessionEnded) and event.code in (
            ErrorCode.UNAUTHENTICATED,
            ErrorCode.PROTOCOL,
        )
        record.note("J02", f"{what}: {_name(event)}", "refused", ok)
    for what, token in (
        ("private token", private.decode()),
        ("agent's token", agent.decode()),
    ):
        status = attrs.evolve(stage.way(kas), token=token).ask("GET", "/api").status
        record.note("J02", f"{what} as a user: {status}", "401", status == 401)


def _name(event: events.Event) -> str:
    code = getattr(event, "code", None)
    return code.name if isinstance(code, ErrorCode) else type(event).__name__


def test_other_cluster(
    stage: Stage, control_plane: ControlPlane, record: Record
) -> None:
    """J03: who may reach one cluster names another."""
    kas, other = stage.kas[0], stage.kas[1]
    (second,) = [
        one for one in other.status()["agents"] if one["agent_name"] == "second"
    ]
    audit = control_plane.audit()
    agent = stage.token_of("main").read_text().strip().encode()
    target = pb.Target(
        agent_id=second["agent_id"], instance_id=bytes.fromhex(second["instance_id"])
    )
    for where, port in (("its kas", other.agents), ("another kas", kas.agents)):
        with Stranger(port, kas.authority) as stranger:
            welcome = stranger.greet("agent", agent)
            assert isinstance(welcome, events.WelcomeReceived)
            assert welcome.welcome.agent_name == "main"
            stranger.session.open_stream(
                pb.Open(
                    method=METHOD,
                    metadata=b"GET /version?j03 HTTP/1.1\r\n",
                    target=target,
                ),
                fin=True,
            )
            event = stranger.until(events.StreamEnded, events.HeadersReceived)
            record.note(
                "J03",
                f"agent main opens a stream to the second through {where}: "
                f"{_name(event)}",
                "refused",
                isinstance(event, events.StreamEnded),
            )
            stranger.session.open_stream(
                pb.Resume(resume_id=os.urandom(16), target=target)
            )
            event = stranger.until(events.StreamEnded, events.ResumedReceived)
            record.note(
                "J03",
                f"... resumes one there: {_name(event)}",
                "refused",
                isinstance(event, (events.StreamEnded, events.SessionEnded)),
            )
    mine, theirs = stage.way(kas), stage.way(kas, "of-second")
    kind, _, secret = mine.token.split(":", 2)
    forged = attrs.evolve(mine, token=f"{kind}:{second['agent_id']}:{secret}")
    status = forged.ask("GET", "/version?j03").status
    record.note(
        "J03",
        f"main's user names the second in its token: {status}",
        "403",
        status == 403,
    )
    assert theirs.ask("GET", "/version").status == 200
    asked = audit.about("j03")
    record.note("J03", f"{len(asked)} of them reached it", "0", not asked)


def _status(way: Way) -> int:
    try:
        return way.ask("GET", "/version").status
    except OSError:
        return 0


@pytest.mark.parametrize("redis", ["up", "down"])
def test_revoked(
    redis: str,
    stage: Stage,
    control_plane: ControlPlane,
    namespace: str,
    record: Record,
) -> None:
    """J04: during an exec, an upload and silence, at a kas that has not the agent."""
    pods.start_pods(stage.direct(namespace))
    experiment = f"J04, Redis {redis}"
    # Each attempt has its own.
    name = f"doomed-{next(_numbers)}"
    stage.add_user_for([name])
    doomed = stage.fleet.agentk(
        stage.token_of(name),
        control_plane.agent,
        name=name,
        address=f"tls://127.0.0.1:{stage.kas[0].agents}",
    )
    far = stage.kas[2]
    user = f"of-{name}"
    way = stage.way(far, user)
    eventually(lambda: stage.answers(way))
    with ExitStack() as stack:
        if redis == "down":
            stage.fleet.redis.stop()
            stack.callback(stage.fleet.redis.start)
        guest = attrs.evolve(
            stage.kubectl(far, namespace),
            kubeconfig=stage.kubeconfig(far, user),
        )
        run = stack.enter_context(followers.Exec(guest, "main", "tick"))
        eventually(lambda: run.numbers("got"), what="exec runs")
        upload = stack.enter_context(way.connect())
        target = f"/api/v1/namespaces/{namespace}/configmaps"
        upload.send(way.head("POST", target, "Content-Length: 500000") + bytes(100_000))
        idle = stack.enter_context(way.connect())
        idle.send(way.head("GET", f"{target}?watch=1"))
        assert idle.head()[1] == 200
        # The user first.
        begin = time.monotonic()
        stage.kas[0].ctl("user", "revoke", user)
        run.reader.join(REVOKED_SECONDS + 5)
        cut = time.monotonic() - begin
        answered = upload.answer("POST").status
        idle.rest()
        all_cut = time.monotonic() - begin
        refused = clients.seconds_until(
            lambda: all(_status(stage.way(kas, user)) == 401 for kas in stage.kas), 15
        )
        record.note(
            experiment,
            f"user: exec ended after {cut:.1f} s, upload ({answered}) and watch after "
            f"{all_cut:.1f} s, 401 everywhere {refused:.1f} s later",
            f"<= {REVOKED_SECONDS} s",
            answered == 401,
            in_time=all_cut + refused <= REVOKED_SECONDS,
        )
        # Then the agent, with somebody else's exec through it.
        stage.kas[0].ctl(
            *("user", "add", f"{user}-2", "--agent", name, "--as-agent"),
            *("--token-file", stage.folder / f"{user}-2.token"),
        )
        token = (stage.folder / f"{user}-2.token").read_text().strip()
        kind, number, _ = way.token.split(":", 2)
        again = attrs.evolve(way, token=f"{kind}:{number}:{token}")
        eventually(lambda: _status(again) == 200, what="the next user is known")
        watch = stack.enter_context(again.connect())
        watch.send(again.head("GET", f"{target}?watch=1"))
        assert watch.head()[1] == 200
        begin = time.monotonic()
        stage.kas[0].ctl("agent", "revoke", name)
        watch.rest()
        cut = time.monotonic() - begin
        gone = clients.seconds_until(
            lambda: not doomed.ready() and _status(again) in (401, 403, 404, 503), 40
        )
        record.note(
            experiment,
            f"agent: its watch ended after {cut:.1f} s, {_status(again)} "
            f"{gone:.1f} s later",
            f"<= {REVOKED_SECONDS} s",
            in_time=cut + gone <= REVOKED_SECONDS,
        )
