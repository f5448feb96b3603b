"""Pushes that GitLab and Git servers tell of, and who hears of them."""

from __future__ import annotations

import hashlib
import hmac
import tempfile
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver, StringTransport
from twisted.logger import formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Site
from zope.interface.verify import verifyObject

from modules.notifications import rpc_pb2, server
from modules.notifications.server import NOTIFICATIONS, NotificationsServer
from modules.notifications.webhook import Webhook
from tunnel.api import (
    GitPushed,
    IServerModule,
)
from tunnel.errors import CallError, Status
from tunnel.testing import ModulePair

SECRET = "a secret of some length"


class NotificationsTests(SynchronousTestCase):
    """The module behind an external API, and a web listener, in memory."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "secret"
        self.file.write_text(SECRET + "\n")
        self.pair = ModulePair(Clock())
        self.module = self.pair.server_half(
            NotificationsServer, webhook_secret_file=self.file
        )
        self.heard: list[str] = []
        self.module._api.events.subscribe(
            GitPushed, lambda event: self.heard.append(event.project)
        )
        self.pair.start()
        self.addCleanup(self.pair.stop)
        self.pair.settle()

    def push(self, full_path: str = "group/app", number: int = 7) -> None:
        request = rpc_pb2.GitPushEventRequest()
        request.event.project.id = number
        request.event.project.full_path = full_path
        self.pair.run(self.pair.external(NOTIFICATIONS).call("GitPushEvent", request))
        self.pair.settle()

    def hook(self, name: str = "clusters", body: Any = b"{}", **fields: Any) -> Any:
        return self.pair.visit(f"/git/pushed/{name}", "POST", body, **fields)

    def test_interface(self) -> None:
        """It is a module."""
        self.assertTrue(verifyObject(IServerModule, self.module))

    def test_names_and_numbers(self) -> None:
        """They are those of GitLab's agent."""
        self.assertEqual(
            NOTIFICATIONS.full_name, "gitlab.agent.notifications.rpc.Notifications"
        )
        request = rpc_pb2.GitPushEventRequest()
        request.event.project.id = 7
        request.event.project.full_path = "a/b"
        self.assertEqual(
            request.SerializeToString(), b"\x0a\x09\x0a\x07\x08\x07\x12\x03a/b"
        )

    def test_push(self) -> None:
        """Everybody who subscribed hears of each push."""
        self.push()
        self.push()
        self.push("other")
        self.assertEqual(self.heard, ["group/app", "group/app", "other"])

    def test_the_log_has_each_name_once(self) -> None:
        """So an operator sees one that no repository has; so many, and no more."""
        log = EventLoggingObserver()
        globalLogPublisher.addObserver(log)
        self.addCleanup(globalLogPublisher.removeObserver, log)
        self.patch(server, "MAX_NAMES", 2)
        for name in ("clusters", "clusterz", "clusters", "third"):
            self.push(name)
        said = [formatEvent(one) for one in log]
        names = [
            one.split()[6] for one in said if "first notification of a push to" in one
        ]
        self.assertEqual(names, ["'clusters':", "'clusterz':"])
        self.assertEqual(len(self.heard), 4)

    def test_refused(self) -> None:
        """What can be no project."""
        for full_path, number in (("a", 0), ("", 7), ("a\nb", 7), ("x" * 1025, 7)):
            with self.assertRaises(CallError) as caught:
                self.push(full_path, number)
            self.assertIs(caught.exception.status, Status.INVALID_ARGUMENT)
        self.assertEqual(self.heard, [])

    def test_heard_by_another_kas(self) -> None:
        """What stands in the store comes from other kas; a gap in it loses nothing."""
        self.pair.store.lose()
        self.pair.settle()
        self.push("late")
        self.assertEqual(self.heard[-1], "late")

    def test_store_is_down(self) -> None:
        """Agents of this kas hear of it; that others do not is told."""
        self.pair.store.down = True
        with self.assertRaises(CallError) as caught:
            self.push()
        self.assertIs(caught.exception.status, Status.UNAVAILABLE)
        self.assertEqual(self.heard, ["group/app"])

    def test_webhook(self) -> None:
        """GitLab's header, a signature, and a bearer token."""
        body = b'{"ref": "refs/heads/main"}'
        mac = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        fields: dict[str, Any]
        for fields in (
            {"X_Gitlab_Token": SECRET},
            {"Authorization": f"Bearer {SECRET}"},
            {"X_Hub_Signature_256": f"sha256={mac}"},
        ):
            self.assertEqual(self.hook(body=body, **fields).status, 204)
        self.pair.settle()
        self.assertEqual(self.heard, ["clusters"] * 3)
        answer = self.hook("group/app", X_Gitlab_Token=SECRET)
        self.assertEqual(answer.status, 204)
        self.assertEqual(self.heard[-1], "group/app")

    def test_webhook_whose_caller_left(self) -> None:
        """The push is published all the same, and nothing is said to it."""
        for outcome in (None, CallError(Status.UNAVAILABLE, "away")):
            waiting: Deferred[None] = Deferred()
            ended: list[str] = []

            async def pushed(
                name: str, waiting: Deferred[None] = waiting, ended: list[str] = ended
            ) -> None:
                try:
                    await waiting
                finally:
                    ended.append(name)

            site: Any = Site(Webhook(self.file, pushed).app.resource())
            site.noisy = False
            connection: Any = site.buildProtocol(None)
            transport = StringTransport()
            connection.makeConnection(transport)
            head = f"POST /clusters HTTP/1.0\r\nX-Gitlab-Token: {SECRET}\r\n\r\n"
            connection.dataReceived(head.encode())
            connection.connectionLost(Failure(ConnectionLost()))
            self.assertEqual(transport.value(), b"")
            self.assertEqual(ended, [])
            if outcome is None:
                waiting.callback(None)
            else:
                waiting.errback(outcome)
            self.assertEqual(ended, ["clusters"])
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_webhook_of_strangers(self) -> None:
        """Without the secret nothing happens, and nothing is said of it."""
        fields: dict[str, Any]
        for fields in (
            {},
            {"X_Gitlab_Token": "wrong"},
            {"X_Gitlab_Token": ""},
            {"Authorization": f"Basic {SECRET}"},
            {"X_Hub_Signature_256": "sha256=" + "0" * 64},
        ):
            answer = self.hook(**fields)
            self.assertEqual(answer.status, 401)
            self.assertNotIn(SECRET.encode(), answer.body)
        self.file.unlink()
        self.assertEqual(self.hook(X_Gitlab_Token=SECRET).status, 401)
        self.flushLoggedErrors()
        self.assertEqual(self.heard, [])

    def test_webhook_that_cannot_be(self) -> None:
        """A name that is none, another method, and a store that is down."""
        self.assertEqual(self.hook("", X_Gitlab_Token=SECRET).status, 400)
        self.assertEqual(self.pair.visit("/git/pushed/a").status, 405)
        self.pair.store.down = True
        self.assertEqual(self.hook(X_Gitlab_Token=SECRET).status, 503)
