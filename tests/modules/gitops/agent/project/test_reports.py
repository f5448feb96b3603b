"""Drift on its way: agentk, the objects themselves, kas' event bus, webhooks."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.web.client import Response
from twisted.web.iweb import IAgent, IBodyProducer
from zope.interface import implementer
from zope.interface.verify import verifyObject

from modules.gitops.agent.drift.drift import Drift, DriftKind
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.project import reports
from modules.gitops.server import reported, webhooks
from modules.gitops.server.config import WebhookFormat, WebhookSettings
from modules.gitops.server.reported import AgentDrift
from modules.gitops.server.webhooks import DriftWebhook
from modules.gitops.wire import control_pb2 as pb
from modules.gitops.wire import reports_pb2
from tests.modules.gitops.agent.drift.test_drift import DriftTestCase
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tunnel.errors import CallError, Status
from tunnel.kubernetes.client import TIMEOUT
from tunnel.testing.ends import AGENT

SECRET = b"of sixteen bytes and more"


class ReportTests(DriftTestCase):
    """From agentk to kas."""

    def setUp(self) -> None:
        super().setUp()
        self.published: list[AgentDrift] = []
        self.server._api.events.subscribe(AgentDrift, self.published.append)

    def told(self) -> list[tuple[str, int]]:
        drifts = [one for each in self.published for one in each.drifts]
        return [(one.object.name, one.state) for one in drifts]

    def test_what_kas_learns(self) -> None:
        self.begin(*config_maps(1, 2))
        self.edit("m001", data={"n": "other"})
        self.passes(2)
        self.assertEqual(
            self.told(),
            [
                ("m001", pb.ObjectDrift.STATE_DUE),
                ("m001", pb.ObjectDrift.STATE_REPAIRED),
            ],
        )
        self.assertEqual(self.published[0].agent_name, AGENT.agent_name)

    def test_what_the_object_shows(self) -> None:
        """Two Events that say the same are one."""
        self.begin(*config_maps(1))
        for number in range(3):
            self.edit("m001", data={"n": f"other {number}"})
        posted = [
            json.loads(one.body)
            for one in self.cluster.requests
            if one.method == "POST" and one.path.endswith("/events")
        ]
        (event,) = posted
        self.assertEqual(event["involvedObject"]["name"], "m001")
        self.assertEqual((event["reason"], event["type"]), ("DriftRepaired", "Normal"))
        self.assertNotIn("other", event["message"])

    def test_of_which_object_an_event_is(self) -> None:
        """Of the one that is there, or was: ``kubectl describe`` asks by uid."""
        self.begin(*config_maps(1, 2))
        self.edit("m001", data={"n": "other"})
        self.remove("m002")
        found = {
            event["involvedObject"]["name"]: event["involvedObject"]["uid"]
            for one in self.cluster.requests
            if one.path.endswith("/events") and (event := json.loads(one.body))
        }
        for name in ("m001", "m002"):
            self.assertEqual(found[name], self.live(name)["metadata"]["uid"])

    def test_so_many_events(self) -> None:
        self.agent._reports._allowed._times = 3
        self.begin(*config_maps(*range(9)))
        for number in range(9):
            self.cluster.objects.remove("v1", "ConfigMap", f"m{number:03}", "default")
        self.passes(4)
        posted = [one for one in self.cluster.requests if one.path.endswith("/events")]
        self.assertEqual(len(posted), 3)

    def test_events_that_wait(self) -> None:
        """While the API server is silent only the last ones do."""
        self.begin(*config_maps(1))
        events = self.agent._reports
        self.cluster.silent = True
        keys = [
            ObjectKey("", "ConfigMap", "default", f"m{number}")
            for number in range(reports.MAX_EVENTS * 2)
        ]
        for key in keys:
            events._add_event("apps", Drift(key, DriftKind.CHANGED, "c", 0.0, "v1"))
            self.clock.advance(reports.EVENTS_SECONDS / reports.EVENTS)
        names = [one["involvedObject"]["name"] for one in events._events]
        self.assertEqual(len(names), reports.MAX_EVENTS)
        self.assertEqual(names[-1], keys[-1].name)
        events.add("apps", Drift(keys[-1], DriftKind.DELETED, "c", 0.0, "v1"))
        self.passes(TIMEOUT)
        self.assertEqual(self.said("Events about drift were dropped"), [])
        self.cluster.silent = False
        self.passes(TIMEOUT)
        self.assertEqual(len(events._events), 0)
        (line,) = self.said("Events about drift were dropped")
        self.assertIn("100 Events", line)

    def test_kas_away(self) -> None:
        """It is told later, and of what is too much only how much it was."""
        self.patch(reports, "MAX_WAITING", 4)
        self.patch(reported, "REPORTS_OF_ONE", 1)
        self.begin(*config_maps(1, 2, 3, 4))
        self.edit("m001", data={"n": "other"})
        self.passes(2)
        self.assertEqual(len(self.told()), 2)
        self.published.clear()
        for name in ("m002", "m003", "m004"):
            self.edit(name, data={"n": "other"})
        self.passes(10)
        self.assertEqual(self.published, [])
        self.passes(reports.AGAIN_MOST * 2)
        self.assertEqual(len(self.told()), 4)
        self.assertEqual(sum(one.left_out for one in self.published), 2)

    def test_much_at_once(self) -> None:
        """More bytes than kas takes in one report."""
        fields = {f"k{number}": "a" for number in range(20)}
        names = [f"m{number:03}" for number in range(99)]
        self.begin(
            *[object_(name, data=fields) for name in names], drift={"mode": "report"}
        )
        for name in names:
            data = dict.fromkeys(fields, "\u6f22" * 300)
            self.cluster.objects.put({**self.live(name), "data": data})
        self.passes(60)
        self.assertEqual(sorted(name for name, _ in self.told()), names)
        self.assertGreater(len(self.published), 1)
        drifts = [one for each in self.published for one in each.drifts]
        self.assertGreater(sum(one.ByteSize() for one in drifts), reported.MAX_BYTES)

    def test_one_that_kas_refuses(self) -> None:
        """It is left out and counted; all others are told."""
        self.patch(reported, "_has_many", lambda one: one.object.name == "m003")
        self.begin(*config_maps(*range(9)), drift={"mode": "report"})
        for number in range(9):
            name = f"m{number:03}"
            self.cluster.objects.put({**self.live(name), "data": {"n": "other"}})
        self.passes(90)
        names = sorted(name for name, _ in self.told())
        self.assertEqual(names, [f"m{number:03}" for number in range(9) if number != 3])
        self.assertEqual(sum(one.left_out for one in self.published), 1)
        self.assertEqual(len(self.agent._reports._waiting), 0)

    def test_what_kas_takes(self) -> None:
        """So many in a report, so many reports."""
        api = self.server._api
        taking = reported.Reported(api)
        call = attrs.make_class("Call", ["agent"])(AGENT)
        many = reports_pb2.ReportDriftRequest(
            drifts=[pb.ObjectDrift()] * (reported.MAX_DRIFTS + 1)
        )
        with self.assertRaises(CallError) as caught:
            self.pair.run(taking.report_drift(many, call))
        self.assertEqual(caught.exception.status, Status.INVALID_ARGUMENT)
        parts = [pb.ObjectDrift.Field()] * (reported.MAX_PARTS + 1)
        large = reports_pb2.ReportDriftRequest(drifts=[pb.ObjectDrift(fields=parts)])
        with self.assertRaises(CallError) as caught:
            self.pair.run(taking.report_drift(large, call))
        self.assertEqual(caught.exception.status, Status.INVALID_ARGUMENT)
        few = reports_pb2.ReportDriftRequest()
        for _ in range(reported.REPORTS_OF_ONE - 2):
            self.pair.run(taking.report_drift(few, call))
        with self.assertRaises(CallError) as caught:
            self.pair.run(taking.report_drift(few, call))
        self.assertEqual(caught.exception.status, Status.RESOURCE_EXHAUSTED)
        self.clock.advance(reported.REPORTS_SECONDS)
        self.pair.run(taking.report_drift(few, call))

    def test_texts_that_kas_takes(self) -> None:
        """Each is one line, and not too long, before anyone else has it."""
        taking = reported.Reported(self.server._api)
        call = attrs.make_class("Call", ["agent"])(AGENT)
        drift = pb.ObjectDrift(project="a\nb", credentials=["x" * 2000])
        drift.object.name = "\x1b[31m"
        request = reports_pb2.ReportDriftRequest(drifts=[drift])
        self.pair.run(taking.report_drift(request, call))
        (found,) = self.published[-1].drifts
        self.assertEqual((found.project, found.object.name), ("a?b", "?[31m"))
        self.assertEqual(len(found.credentials[0]), reported.MAX_TEXT)

    def test_agents_that_are_counted(self) -> None:
        self.patch(reported, "MAX_AGENTS", 2)
        taking = reported.Reported(self.server._api)
        for name in "123":
            agent = attrs.evolve(AGENT, agent_id=name)
            call = attrs.make_class("Call", ["agent"])(agent)
            self.pair.run(taking.report_drift(reports_pb2.ReportDriftRequest(), call))
        self.assertEqual(sorted(taking.counted), ["2", "3"])


@implementer(IAgent)
class Http:
    """What makes requests; the test says what becomes of them."""

    def __init__(self) -> None:
        self.requests: list[tuple[bytes, Any, bytes]] = []
        self.outcome: Callable[[], Deferred[Any]] = self.ok

    def request(
        self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None
    ) -> Deferred[Any]:
        body = bodyProducer
        verifyObject(IBodyProducer, body)
        transport = StringTransport()
        body.startProducing(transport)
        assert len(transport.value()) == body.length
        self.requests.append((uri, headers, transport.value()))
        return self.outcome()

    def ok(self, code: int = 204) -> Deferred[Any]:
        response = Response((b"HTTP", 1, 1), code, b"", None, StringTransport())
        return succeed(response)

    def refused(self) -> Deferred[Any]:
        return fail(ConnectionRefusedError())


class TestWebhooks:
    """From kas to the operator's address."""

    def begin(self, folder: Path, **settings: Any) -> DriftWebhook:
        self.clock, self.http = Clock(), Http()
        self.secret = folder / "secret"
        self.secret.write_bytes(SECRET)
        url = "https://alerts.example.org/path-that-is-secret"
        found = WebhookSettings(url=url, secret_file=self.secret, **settings)
        return DriftWebhook(found, self.clock, lambda: 100.7, lambda: 1.0, self.http)

    def event(self, agent: str = "prod", name: str = "x") -> AgentDrift:
        drift = pb.ObjectDrift(project="apps", object=pb.ObjectReference(name=name))
        return AgentDrift("1", agent, (drift,))

    def names(self) -> list[str]:
        bodies = [json.loads(body) for _, _, body in self.http.requests]
        return [one["drifts"][0]["object"]["name"] for one in bodies]

    def test_a_request(self, tmp_path: Path) -> None:
        webhook = self.begin(tmp_path)
        webhook.send(self.event())
        ((url, headers, body),) = self.http.requests
        assert url == b"https://alerts.example.org/path-that-is-secret"
        assert json.loads(body)["agent"] == {"id": "1", "name": "prod"}
        (time,) = headers.getRawHeaders("Txkas-Timestamp")
        mac = hmac.digest(SECRET, f"{time}.".encode() + body, "sha256").hex()
        assert headers.getRawHeaders("Txkas-Signature") == [f"sha256={mac}"]
        webhook.send(self.event(name="y"))
        assert self.names() == ["x", "y"]

    def test_which_agents(self, tmp_path: Path) -> None:
        webhook = self.begin(tmp_path, agents=("prod-*",))
        webhook.send(self.event("test-1"))
        assert self.http.requests == []
        webhook.send(self.event("prod-1"))
        assert len(self.http.requests) == 1

    def test_attempts(self, tmp_path: Path) -> None:
        """With pauses, and in order; a redirect is a failure, too."""
        webhook = self.begin(tmp_path)
        self.http.outcome = self.http.refused
        webhook.send(self.event())
        webhook.send(self.event(name="y"))
        assert self.names() == ["x"]
        self.http.outcome = lambda: self.http.ok(302)
        self.clock.advance(webhooks.PAUSE_FIRST)
        assert self.names() == ["x", "x"]
        self.http.outcome = self.http.ok
        self.clock.advance(webhooks.PAUSE_FIRST * 2)
        assert self.names() == ["x", "x", "x", "y"]

    def test_it_gives_up(self, tmp_path: Path, caplog: Any) -> None:
        webhook = self.begin(tmp_path)
        self.http.outcome = self.http.refused
        webhook.send(self.event())
        for _ in range(webhooks.ATTEMPTS * 2):
            self.clock.advance(webhooks.PAUSE_MOST)
        assert self.names() == ["x"] * webhooks.ATTEMPTS
        self.http.outcome = self.http.ok
        webhook.send(self.event(name="y"))
        assert self.names()[-1] == "y"

    def test_one_that_does_not_answer(self, tmp_path: Path) -> None:
        webhook = self.begin(tmp_path)
        self.http.outcome = Deferred
        webhook.send(self.event())
        for _ in range(1000):
            webhook.send(self.event())
        assert len(webhook._waiting) == webhooks.MAX_WAITING
        self.clock.advance(webhooks.SECONDS)
        self.http.outcome = self.http.ok
        self.clock.advance(webhooks.PAUSE_FIRST)
        assert len(webhook._waiting) == 0
        self.http.outcome = Deferred
        webhook.send(self.event())
        webhook.stop()
        assert self.clock.getDelayedCalls() == []

    def test_bytes_that_wait(self, tmp_path: Path) -> None:
        """An agent that says much pushes out what it says itself."""
        webhook = self.begin(tmp_path)
        self.http.outcome = Deferred
        webhook.send(self.event())
        webhook.send(attrs.evolve(self.event(), agent_id="2"))
        # Each of these is six bytes of JSON.
        drift = pb.ObjectDrift(reason="\x01" * 1_000_000)
        for _ in range(10):
            webhook.send(attrs.evolve(self.event(), drifts=(drift,)))
        waiting = [one.agent_id for one in webhook._waiting]
        assert waiting == ["2", "1", "1"]
        assert webhook._bytes == sum(len(one.body) for one in webhook._waiting)
        assert webhook._bytes <= webhooks.MAX_WAITING_BYTES

    def test_an_answer_that_does_not_end(self, tmp_path: Path) -> None:
        """It keeps no connection."""
        webhook = self.begin(tmp_path)
        transport = StringTransport()
        response = Response((b"HTTP", 1, 1), 200, b"", None, transport)
        self.http.outcome = lambda: succeed(response)
        webhook.send(self.event())
        assert not transport.disconnecting
        self.clock.advance(webhooks.SECONDS)
        assert transport.disconnecting

    def test_a_secret_that_is_gone(self, tmp_path: Path) -> None:
        """Nothing is sent unsigned."""
        webhook = self.begin(tmp_path)
        self.secret.unlink()
        webhook.send(self.event())
        assert self.http.requests == []
        self.secret.write_bytes(SECRET)
        self.clock.advance(webhooks.PAUSE_FIRST)
        assert self.names() == ["x"]

    def test_an_alert_of_gitlab(self, tmp_path: Path) -> None:
        """One for each object, which ends when the drift does."""
        webhook = self.begin(tmp_path, format=WebhookFormat.GITLAB_ALERT)
        named = pb.ObjectReference(
            group="apps", kind="Deployment", namespace="prod", name="web"
        )
        field = pb.ObjectDrift.Field(path="/assign @root", wanted="2")
        field.live = "`![](https://x)"
        drift = pb.ObjectDrift(
            project="apps",
            object=named,
            kind=pb.ObjectDrift.KIND_CHANGED,
            state=pb.ObjectDrift.STATE_REPORTED,
            fields=[field] * 30,
            more_fields=1,
            credentials=["user:alice"],
            commit="c" * 40,
            place="apps/web.yaml:7",
        )
        other = pb.ObjectDrift(project="apps", kind=pb.ObjectDrift.KIND_DELETED)
        webhook.send(AgentDrift("1", "prod", (drift, other)))
        drift.state = pb.ObjectDrift.STATE_REPAIRED
        webhook.send(AgentDrift("1", "prod", (drift,)))
        for _, headers, _ in self.http.requests:
            assert headers.getRawHeaders("Authorization") == [
                f"Bearer {SECRET.decode()}"
            ]
            assert not headers.hasHeader("Txkas-Signature")
        changed, deleted, ended = (json.loads(one) for *_, one in self.http.requests)
        assert set(changed) == {
            *("title", "description", "start_time", "service", "monitoring_tool"),
            *("hosts", "severity", "fingerprint"),
        }
        assert changed["title"] == "Deployment.apps prod/web was changed"
        assert changed["start_time"] == "1970-01-01T00:01:40Z"
        assert (changed["severity"], deleted["severity"]) == ("medium", "high")
        assert changed["fingerprint"] == ended["fingerprint"] != deleted["fingerprint"]
        assert ended["end_time"] == "1970-01-01T00:01:40Z"
        lines = changed["description"].splitlines()
        assert lines[:2] == [
            "By: `user:alice`",
            "In Git: `apps/web.yaml:7` at `cccccccccccc`",
        ]
        # Names nobody, and shows nothing, outside of code.
        assert lines[2] == "Field `/assign @root`: `2` in Git, `?![](https://x)` now"
        assert lines[-1] == "Fields that are not shown: 11"
        # GitLab takes such lines for commands.
        assert not [one for one in lines if one.startswith("/")]
