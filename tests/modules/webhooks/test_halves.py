"""A push reaches a Service: schedule, superseding, restarts, failing receivers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher

from modules.webhooks.server import deliveries
from modules.webhooks.server.deliveries import (
    CHANGED_MOST,
    LOOK_AGAIN,
    NO_COMMIT,
    REPORT_SECONDS,
)
from modules.webhooks.server.module import STREAMS_OF_ONE, STREAMS_SECONDS
from modules.webhooks.server.schedule import PAUSES, SLOW_PAUSE
from modules.webhooks.wire import webhooks_pb2 as wire
from tests.modules.webhooks.pair import (
    ADDRESS,
    SECRET,
    TARGET,
    WebhookPair,
    secret,
    service,
)
from tunnel.api import Draining, GitPushed
from tunnel.errors import CallError, Status
from tunnel.testing import FakeService


@pytest.fixture
def world() -> Iterator[WebhookPair]:
    """Both halves with one target; agentk leads."""
    world = WebhookPair()
    world.lead()
    world.configure({})
    yield world
    world.stop()
    assert not world.pair.failures


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The lines of the log."""
    observer = EventLoggingObserver()
    globalLogPublisher.addObserver(observer)
    lines: list[str] = []
    yield lines
    globalLogPublisher.removeObserver(observer)
    lines += [formatEvent(one) for one in observer]
    assert not any(SECRET.decode() in one for one in lines)


def test_a_push(world: WebhookPair, logged: list[str]) -> None:
    assert world.receiver.requests == []
    (state,) = world.listed()
    assert (state.state, state.after) == (wire.WAITING, world.first)
    commit = world.push("2")
    (request,) = world.receiver.requests
    assert (request.method, request.path) == ("POST", "/hook/1234")
    assert request.fields["host"] == ["webhook-receiver.flux-system.svc:80"]
    assert "authorization" not in request.fields
    (body,) = world.bodies
    assert body["type"] == "git.push"
    assert body["data"] == {
        "repository": {
            "name": "apps",
            "url": "https://git.example.org/group/apps",
            "default_branch": "main",
        },
        "ref": "refs/heads/main",
        "before": world.first,
        "after": commit,
        "changed": ["apps/a.yaml"],
    }
    (state,) = world.listed()
    assert state.state == wire.DELIVERED
    assert (state.attempts, state.last_status) == (1, 200)
    assert not state.HasField("next_attempt")
    world.passes(86_400)
    assert len(world.receiver.requests) == 1


def test_polling(world: WebhookPair) -> None:
    """A push that nobody announces is noticed, too."""
    commit = world.commit("2")
    world.passes(3601)
    assert world.announced() == [commit]


def test_schedule(world: WebhookPair) -> None:
    """At once, 5 s, 5 min, ... 24 h; each attempt has the same id and its own time."""
    world.receiver.status, world.receiver.body = 500, b"x" * 10_000
    begin = world.clock.seconds()
    world.push("2")
    times = list(accumulate(PAUSES))
    for count, time in enumerate(times, 1):
        world.passes(begin + time - world.clock.seconds() - 1.5)
        assert len(world.receiver.requests) == max(1, count - 1), time
        world.passes(3)
        assert len(world.receiver.requests) == count, time
    (state,) = world.listed()
    assert (state.state, state.attempts) == (wire.FAILED, 10)
    assert state.last_body == b"x" * 4096
    world.passes(2 * 86_400)
    assert len(world.receiver.requests) == 10
    fields = [one.fields for one in world.receiver.requests]
    assert len({one["webhook-id"][0] for one in fields}) == 1
    assert len({one["webhook-timestamp"][0] for one in fields}) == 10
    assert len({one.body for one in world.receiver.requests}) == 1
    # The next push starts again.
    world.receiver.status = 204
    commit = world.push("3")
    assert world.announced()[-1] == commit
    assert world.bodies[-1]["data"]["before"] == world.first


def test_a_ref_that_returns_to_a_commit(world: WebhookPair) -> None:
    """Each push has its own id, because receivers ignore an id that they have seen."""
    commits = []
    for text in ("2", "3"):
        commits.append(world.push(text))
    for commit in (*commits, *commits):
        world.repository.rewind(commit)
        world.server._api.events.publish(GitPushed("apps"))
        world.passes(1)
    assert world.announced() == commits * 3
    ids = [one.fields["webhook-id"][0] for one in world.receiver.requests]
    assert len(set(ids)) == 6


@pytest.mark.parametrize("status", [500, 503])
def test_a_clock_that_was_ahead(world: WebhookPair, status: int) -> None:
    """A pause that began in the future does not last until then."""
    world.server.now = lambda: world.clock.seconds() + 30 * 86_400
    world.restart({})
    world.server.now = lambda: world.clock.seconds() + 30 * 86_400
    world.receiver.status = status
    world.push("2")
    assert len(world.receiver.requests) == 1
    world.receiver.status = 200
    world.server.now = world.clock.seconds
    world.passes(LOOK_AGAIN + 1)
    assert len(world.receiver.requests) == 2
    assert world.listed()[0].state == wire.DELIVERED


def test_a_body_without_end(world: WebhookPair) -> None:
    """The status decides."""
    world.receiver.missing, world.receiver.body = 1, b"accepted"
    world.push("2")
    world.passes(40)
    (state,) = world.listed()
    assert (state.state, state.last_status) == (wire.DELIVERED, 200)
    world.passes(86_400)
    assert len(world.receiver.requests) == 1


@pytest.mark.parametrize(
    ("format", "shown"), [("generic", b"echo"), ("github", b"echo"), ("gitlab", b"")]
)
def test_a_receiver_that_repeats_the_request(
    world: WebhookPair, format: str, shown: bytes
) -> None:
    """kas does not get the response to a request that contains the secret itself."""
    world.receiver.status, world.receiver.body = 500, b"echo"
    world.configure({"format": format})
    world.push("2")
    (state,) = world.listed()
    assert (state.last_status, state.last_body) == (500, shown)


def test_superseded(world: WebhookPair) -> None:
    """Only the newest commit is announced, with every change since the last one."""
    world.receiver.status = 503
    world.push("2")
    world.push("3")
    world.repository.commit({"apps/a.yaml": "3", "c": "1"})
    world.receiver.status = 200
    last = world.push("4")
    before = len(world.receiver.requests)
    assert world.announced()[-1] == last
    assert world.bodies[-1]["data"]["before"] == world.first
    world.passes(100_000)
    assert len(world.receiver.requests) == before
    (state,) = world.listed()
    assert (state.state, state.attempts) == (wire.DELIVERED, 1)


def test_an_agent_that_was_away(world: WebhookPair) -> None:
    """A thousand pushes meanwhile are one request for each ref."""
    world.configure({"refs": ["main", "next"]})
    world.push("1", "refs/heads/next")
    requests = len(world.receiver.requests)
    world.follow_no_longer()
    for number in range(1000):
        world.commit(str(number), "refs/heads/next")
        world.commit(str(number))
    last = world.commit("the last")
    world.passes(3 * 86_400)
    assert len(world.receiver.requests) == requests
    world.lead()
    world.passes(1)
    found = world.bodies[requests:]
    assert sorted(one["data"]["ref"] for one in found) == [
        "refs/heads/main",
        "refs/heads/next",
    ]
    assert last in world.announced()


def test_restarts(world: WebhookPair) -> None:
    """The schedule survives a restart of kas and agentk, and so does the commit."""
    world.receiver.status = 500
    commit = world.push("2")
    world.passes(6)
    assert len(world.receiver.requests) == 2
    world.restart({})
    world.passes(200)
    assert len(world.receiver.requests) == 2
    assert world.listed()[0].attempts == 2
    world.receiver.status = 200
    world.passes(200)
    assert world.announced() == [commit] * 3
    assert world.listed()[0].state == wire.DELIVERED
    world.restart({})
    world.passes(1000)
    assert len(world.receiver.requests) == 3


def test_pushes_during_a_restart(world: WebhookPair) -> None:
    """The commit in the store is obsolete by then, and is not announced."""
    world.receiver.status = 500
    world.push("2")
    world.follow_no_longer()
    world.passes(10_000)
    last = world.commit("3")
    world.receiver.status = 200
    world.receiver.requests.clear()
    world.restart({})
    world.passes(1)
    assert world.announced() == [last]


def test_a_repository_that_cannot_be_read(world: WebhookPair) -> None:
    """The cluster may reach it, so a delivery does not wait for it."""
    world.receiver.status = 500
    commit = world.push("2")
    world.repository.down = CallError(Status.UNAVAILABLE, "the Git server is down")
    world.receiver.status = 200
    world.restart({})
    world.passes(10)
    assert world.announced() == [commit, commit]
    (state,) = world.listed()
    assert (state.state, "is down" in state.problem) == (wire.DELIVERED, True)
    world.repository.down = None
    world.passes(100)
    assert world.listed()[0].problem == ""


def test_a_stream_that_ends_during_an_attempt(world: WebhookPair) -> None:
    """The next leader repeats the attempt, which does not count twice."""
    world.receiver.silent = True
    world.push("2")
    world.follow_no_longer()
    assert world.listed()[0].attempts == 0
    world.receiver.silent = False
    world.lead()
    world.passes(1)
    assert len(world.receiver.requests) == 1
    assert world.listed()[0].attempts == 1


def test_a_receiver_without_response(world: WebhookPair) -> None:
    world.receiver.silent = True
    world.push("2")
    world.passes(25)
    assert world.listed()[0].attempts == 0
    world.passes(6)
    (state,) = world.listed()
    assert (state.attempts, state.last_status) == (1, 0)
    assert state.last_error == "no response within 30 s"


def test_an_api_server_without_response(world: WebhookPair) -> None:
    """agentk reports that before kas stops waiting."""
    world.cluster.silent = True
    world.push("2")
    world.passes(31)
    (state,) = world.listed()
    assert state.attempts == 1
    assert "API server: no response within 30 s" in state.last_error


def test_a_receiver_that_refuses_connections(world: WebhookPair) -> None:
    world.receiver.refuses = True
    world.push("2")
    (state,) = world.listed()
    assert state.attempts == 1
    assert "refused" in state.last_error


def test_results_that_never_arrive(world: WebhookPair) -> None:
    """A delivery does not wait for them for ever."""
    world.receiver.silent = True
    world.agent._attempts = None
    world.push("2")
    world.passes(REPORT_SECONDS + 1)
    (state,) = world.listed()
    assert state.attempts >= 1
    assert state.last_error == "agentk did not report the result"


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 500])
def test_other_statuses(world: WebhookPair, status: int) -> None:
    """Only 2xx is a success, and a redirect is not followed."""
    other = world.cluster.services["10.96.0.11", 80] = FakeService()
    world.receiver.status = status
    world.receiver.fields = {"Location": "http://10.96.0.11/"}
    world.push("2")
    assert world.listed()[0].state == wire.PENDING
    assert other.requests == []


def test_gone(world: WebhookPair, logged: list[str]) -> None:
    """410 disables the target with all its refs, until an operator resends."""
    world.configure({"refs": ["main", "next"]})
    world.push("1", "refs/heads/next")
    requests = len(world.receiver.requests)
    world.receiver.status = 410
    world.push("2")
    assert len(world.receiver.requests) == requests + 1
    world.receiver.status = 200
    world.push("3")
    world.passes(86_400)
    assert len(world.receiver.requests) == requests + 1
    assert world.listed()[0].state == wire.DISABLED
    assert world.listed()[0].last_status == 410
    world.restart({"refs": ["main", "next"]})
    world.passes(1000)
    assert len(world.receiver.requests) == requests + 1
    world.resend(ref="main")
    assert len(world.receiver.requests) == requests + 2
    assert world.listed()[0].state == wire.DELIVERED


def test_gone_and_changed(world: WebhookPair) -> None:
    """Another receiver is tried again."""
    world.receiver.status = 410
    commit = world.push("2")
    world.receiver.status = 200
    world.configure({"path": "/other"})
    assert world.receiver.requests[-1].path == "/other"
    assert world.announced() == [commit, commit]


@pytest.mark.parametrize("status", [429, 502, 504])
def test_an_overloaded_receiver(world: WebhookPair, status: int) -> None:
    """It gets no request of any ref for a minute."""
    world.configure({"refs": ["main", "next"]})
    world.push("1", "refs/heads/next")
    requests = len(world.receiver.requests)
    world.receiver.status = status
    world.push("2")
    assert len(world.receiver.requests) == requests + 1
    world.push("3", "refs/heads/next")
    world.passes(SLOW_PAUSE - 5)
    assert len(world.receiver.requests) == requests + 1
    world.receiver.status = 200
    world.passes(5)
    assert len(world.receiver.requests) == requests + 3


def test_retry_after(world: WebhookPair) -> None:
    world.receiver.status, world.receiver.fields = 503, {"Retry-After": "1000"}
    world.push("2")
    world.passes(990)
    assert len(world.receiver.requests) == 1
    world.receiver.status = 200
    world.passes(11)
    assert len(world.receiver.requests) == 2


def test_one_request_at_a_time(world: WebhookPair) -> None:
    world.configure({"refs": ["main", "next"]})
    world.push("1", "refs/heads/next")
    requests = len(world.receiver.requests)
    world.receiver.silent = True
    world.commit("5", "refs/heads/next")
    world.push("5")
    world.receiver.silent = False
    world.passes(20)
    assert len(world.receiver.requests) == requests
    world.passes(12)
    assert len(world.receiver.requests) > requests


def test_resend(world: WebhookPair) -> None:
    """An operator repeats what was accepted, or what was there at the beginning."""
    world.resend()
    assert world.announced() == [world.first]
    assert world.bodies[0]["data"]["before"] == NO_COMMIT
    assert world.bodies[0]["data"]["changed"] is None
    commit = world.push("2")
    world.resend()
    assert world.announced() == [world.first, commit, commit]
    assert world.bodies[1] == world.bodies[2]
    audited = world.server._api.audit.events
    assert [(one.action, one.outcome) for one in audited] == [
        ("webhooks.resend", "OK"),
        ("webhooks.resend", "OK"),
    ]
    with pytest.raises(CallError, match="no target 'x'; it has: flux HEAD"):
        world.resend("x")
    assert audited[-1].outcome == "NOT_FOUND"


def test_agents_that_are_away_or_unknown(world: WebhookPair) -> None:
    world.follow_no_longer()
    (state,) = world.listed("agent-1")
    assert world.listed(state.agent_name) == world.listed(state.agent_id)
    with pytest.raises(CallError, match="no webhooks of an agent 'other'"):
        world.listed("other")


def test_removed_targets(world: WebhookPair) -> None:
    """Their state goes; a new target begins with the current commit."""
    world.push("2")
    world.configure({"name": "argo"}, {"name": "other"})
    assert [one.target for one in world.listed()] == ["argo", "other"]
    assert len(world.receiver.requests) == 1
    world.configure()
    with pytest.raises(CallError) as caught:
        world.listed()
    assert caught.value.status is Status.NOT_FOUND


def test_a_restart_before_the_configuration(world: WebhookPair) -> None:
    """An agentk that does not know its targets yet deletes nothing."""
    commit = world.push("2")
    world.follow_no_longer()
    world.pair.stop()
    world._make()
    world.lead()
    world.passes(10)
    assert world.listed()[0].after == commit
    world.configure({})
    world.passes(10)
    assert world.announced() == [commit]


class RefusingStore:
    """A store that refuses each write, because the key has another version."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.refuses = True
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def set(self, key: str, value: bytes, **options: Any) -> int:
        if not self.refuses:
            version: int = await self._inner.set(key, value, **options)
            return version
        self.writes += 1
        raise CallError(Status.ABORTED, f"{key} has changed")


def refusing_store(world: WebhookPair) -> RefusingStore:
    stored = world.server._stored
    store = RefusingStore(stored.store)
    object.__setattr__(stored, "store", store)
    return store


def test_a_value_that_kas_cannot_read(logged: list[str]) -> None:
    """kas announces pushes, and does not write again and again."""
    world = WebhookPair()
    store = refusing_store(world)
    world.lead()
    world.configure({})
    world.passes(30)
    commit = world.push("2")
    world.passes(30)
    assert world.announced() == [commit]
    assert store.writes < 10
    store.refuses = False
    commit = world.push("3")
    assert world.announced()[-1] == commit
    assert [one.after for one in world.listed()] == [commit]
    world.stop()
    assert not world.pair.failures


def test_a_value_that_changes_all_the_time(world: WebhookPair) -> None:
    """Pauses between the attempts to write increase."""
    store = refusing_store(world)
    commit = world.push("2")
    world.passes(30)
    assert 5 < store.writes < 12
    requests = len(world.receiver.requests)
    assert requests < 12
    store.refuses = False
    world.passes(CHANGED_MOST)
    assert world.announced()[-1] == commit
    assert len(world.receiver.requests) <= requests + 1
    # The next conflict has a short pause again.
    store.refuses = True
    commit = world.push("3")
    store.refuses = False
    # After a second of attempts.
    world.passes(1)
    assert world.announced()[-1] == commit


def test_an_outage_of_the_store(world: WebhookPair, logged: list[str]) -> None:
    """Deliveries go on, and nothing is lost afterwards."""
    world.store.down = True
    commit = world.push("2")
    assert world.announced() == [commit]
    world.store.down = False
    world.passes(60)
    assert world.announced()[-1] == commit
    assert world.listed()[0].state == wire.DELIVERED


def test_refs_that_do_not_exist(world: WebhookPair) -> None:
    """The problem is shown until it ends."""
    world.configure({"refs": ["refs/tags/v1"]})
    world.passes(100)
    (state,) = world.listed()
    assert "refs/tags/v1" in state.problem
    world.push("9", "refs/tags/v1")
    world.passes(100)
    (state,) = world.listed()
    assert (state.problem, state.state) == ("", wire.WAITING)


def test_repositories_that_the_agent_may_not_read(world: WebhookPair) -> None:
    world.configure({"repository": "others"})
    (state,) = world.listed()
    assert "may not read the repository 'others'" in state.problem
    assert "modules.webhooks.repositories" in state.problem


def test_other_services(world: WebhookPair) -> None:
    """A name that leads elsewhere is refused, and the reason is shown."""
    world.objects.put(service(address="127.0.0.1"))
    world.push("2")
    (state,) = world.listed()
    assert "127.0.0.1" in state.last_error
    assert world.receiver.requests == []


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (secret(annotation=""), "annotate secret webhook-token"),
        (secret(annotation="other"), "annotate secret webhook-token"),
        (secret(b""), "missing or empty"),
        (secret(SECRET + b"\n"), "ends with a line end"),
        (secret(b"whsec_%%%"), "is not base64"),
    ],
    ids=["no annotation", "another key", "empty", "line end", "not base64"],
)
def test_secrets_that_cannot_be_used(
    world: WebhookPair, logged: list[str], found: Any, why: str
) -> None:
    world.objects.put(found)
    world.push("2")
    (state,) = world.listed()
    assert why in state.last_error
    assert SECRET.decode() not in state.last_error
    assert world.receiver.requests == []


def test_secrets_of_agentk(world: WebhookPair) -> None:
    names = {"service": "default/x:80", "secret": "default/agentk-token/token"}
    world.configure(names)
    world.resend()
    assert "agentk's own namespace" in world.listed()[0].last_error


def test_limits(world: WebhookPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """kas does not trust the schema of agentk."""
    one = wire.Target(name="a", refs=["HEAD"])
    for targets in (
        [wire.Target(name=str(n), refs=["HEAD"]) for n in range(21)],
        [wire.Target(name="a", refs=[str(n) for n in range(101)])],
        [one, one],
        [wire.Target(name="a\n", refs=["HEAD"])],
        [wire.Target(name="a", refs=["x" * 5000])],
        [wire.Target(name="a", refs=[""])],
        [wire.Target(name="a", refs=["refs/keep-around/1"])],
    ):
        with pytest.raises(CallError) as caught:
            deliveries.check_targets(targets)
        assert caught.value.status is Status.INVALID_ARGUMENT
    monkeypatch.setattr(deliveries, "MAX_CHANGED", 0)
    world.push("2")
    assert world.bodies[0]["data"]["changed"] is None


def test_many_streams(world: WebhookPair) -> None:
    """An agentk that begins one after the other is refused for a while."""
    client = world.agent._api.calls.client(wire.DESCRIPTOR.services_by_name["Webhooks"])
    world.follow_no_longer()

    async def begin() -> None:
        async for _ in client.stream("GetDeliveries", wire.GetDeliveriesRequest()):
            pass

    failures: list[Any] = []
    for _ in range(STREAMS_OF_ONE):
        Deferred.fromCoroutine(begin()).addErrback(failures.append)
        world.pair.settle()
    (failure,) = failures
    assert failure.value.status is Status.RESOURCE_EXHAUSTED
    world.lead()
    world.passes(STREAMS_SECONDS + 70)
    commit = world.push("2")
    assert world.announced() == [commit]


def test_an_operator_at_another_kas(
    world: WebhookPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that changed behind the back of kas is read again."""
    changed: list[str] = []

    async def unheard(self: object, key: str, version: int) -> None:
        changed.append(key)

    monkeypatch.setattr(deliveries.AgentDeliveries, "reread", unheard)
    world.resend()
    assert changed
    assert world.receiver.requests == []
    commit = world.push("2")
    assert world.announced()[-1] == commit
    assert world.listed()[0].state == wire.DELIVERED
    assert world.bodies[-1]["data"]["before"] == world.first


def test_results_that_kas_does_not_wait_for(world: WebhookPair) -> None:
    world.push("2")
    (state,) = world.listed()
    for id in ("", state.id):
        report = wire.ReportAttemptRequest(target="flux", ref="HEAD", id=id, status=410)
        client = world.agent._api.calls.client(
            wire.DESCRIPTOR.services_by_name["Webhooks"]
        )
        with pytest.raises(CallError) as caught:
            world.pair.run(client.call("ReportAttempt", report))
        assert caught.value.status is Status.FAILED_PRECONDITION
    assert world.listed()[0].state == wire.DELIVERED


def test_metrics(world: WebhookPair) -> None:
    world.receiver.status = 500
    world.push("2")
    kas, agentk = world.server._api.metrics, world.agent._api.metrics
    value = kas.get_sample_value
    assert value("kas_webhooks_pushes_total") == 1
    assert value("kas_webhooks_attempts_total", {"result": "retry"}) == 1
    assert value("kas_webhooks_deliveries", {"state": "pending"}) == 1
    found = agentk.get_sample_value("agentk_webhooks_requests_total", {"status": "5xx"})
    assert found == 1


def test_drain(world: WebhookPair) -> None:
    """kas sends nothing more; another kas continues."""
    world.server._api.events.publish(Draining())
    world.push("2")
    assert world.receiver.requests == []


def test_nothing_is_left(world: WebhookPair) -> None:
    """No timer and no connection stays after the module has stopped."""
    world.push("2")
    world.receiver.silent = True
    world.push("3")
    world.follow_no_longer()
    world.pair.stop()
    calls = [str(one) for one in world.clock.getDelayedCalls()]
    assert not [one for one in calls if "webhooks" in one], calls
    world._make()


def test_addresses() -> None:
    """The Service of the tests is the receiver."""
    assert service()["spec"]["clusterIP"] == ADDRESS


def test_a_scope(world: WebhookPair) -> None:
    """A Service outside of the agent's scope gets no request."""
    texts = {"webhooks": json.dumps({"targets": [TARGET]})}
    world.pair.sections.apply(texts | {"scope": '{"namespaces": ["apps"]}'})
    world.push("2")
    assert world.receiver.requests == []
    (state,) = world.listed()
    assert "namespace flux-system is outside of the agent's scope" in state.last_error
    world.pair.sections.apply(texts)
    world.passes(PAUSES[1] + 1)
    assert len(world.receiver.requests) == 1
