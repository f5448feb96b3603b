"""The agent half: reads the audit log of the API server next to agentk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.cluster_audit.agent.events import EventReader
from modules.cluster_audit.agent.follower import LogFollower
from modules.cluster_audit.agent.log_files import LogFiles
from modules.cluster_audit.agent.webhook import AuditWebhook, WebhookEvents
from modules.cluster_audit.wire import cluster_audit_pb2 as wire
from tunnel.api import IAgentModule, IAgentModuleApi, IAgentModuleFactory
from tunnel.config import ExistingFile, Invalid, Listen, field
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.files import in_words
from tunnel.toolkit.secret_file import read_secret
from tunnel.toolkit.urls import is_private

__all__ = ["ClusterAuditAgent", "ClusterAuditOptions"]

_CLUSTER_AUDIT = wire.DESCRIPTOR.services_by_name["ClusterAudit"]

#: Timeout of a call to kas, which writes at most a megabyte to its disk.
CALL_SECONDS = 30.0

#: Seconds before another attempt after an error: first and maximum.
RETRY_FIRST, RETRY_MOST = 1.0, 60.0

#: Seconds after which an attempt counts as a success for the backoff.
GOOD_SECONDS = 60.0

_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

#: Statuses that mean that kas does not have the module.
_NOTHING = (Status.UNIMPLEMENTED, Status.FAILED_PRECONDITION)


def _is_secret(instance: object, attribute: object, value: Path) -> None:
    read_secret(value)


@attrs.frozen(kw_only=True)
class WebhookListen(Listen):
    """``webhook``: the listener for the API server."""

    token_file: ExistingFile = field(
        doc="token that the kubeconfig of the API server has as its user's token",
        validator=_is_secret,
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        is_local = self.network == "unix" or is_private(f"http://{self.address}")
        if not (self.tls or is_local):
            raise Invalid(
                "other machines could read the token: add 'certificate_file' and "
                "'key_file', or listen on 127.0.0.1",
                "address",
            )


@attrs.frozen(kw_only=True)
class ClusterAuditOptions:
    """Section ``modules.cluster_audit`` of agentk's configuration."""

    file: Path | None = field(
        default=None,
        doc="the API server's audit log (--audit-log-path, in JSON); agentk also reads "
        "the rotated files beside it",
    )
    webhook: WebhookListen | None = field(
        default=None,
        doc="listener for an API server that sends its audit log to the path /audit "
        "(--audit-webhook-config-file)",
    )
    events: Literal["changes", "all"] = field(
        default="changes",
        doc="changes: changes, sessions, refused requests and reads of Secrets; all: "
        "every request",
    )

    def __attrs_post_init__(self) -> None:
        if self.file is None and self.webhook is None:
            text = "neither 'file' nor 'webhook' is configured; add one of them"
            raise Invalid(text)


@provider(IAgentModuleFactory)
@implementer(IAgentModule)
class ClusterAuditAgent(Collector):
    """
    The agent half of the module ``cluster_audit``.

    Each agentk reads its own file, whether it leads or not: each API server has a log
    of its own.
    """

    _log = Logger()
    configuration = ClusterAuditOptions

    def __init__(self, api: IAgentModuleApi) -> None:
        self.name = api.name
        self._api = api
        self._options: ClusterAuditOptions = api.configuration
        self._follower: LogFollower | None = None
        self._webhook = WebhookEvents()
        self._running: list[Deferred[None]] = []
        self._problem = ""
        self._events = self._left_out = 0
        self._counting = False

    async def start(self) -> None:
        """Begin to send events."""
        self._api.metrics.register(self)
        self._counting = True
        listen, path = self._options.webhook, self._options.file
        if listen is not None:
            token = partial(read_secret, listen.token_file)
            factory = AuditWebhook(self._webhook, token).factory(self._api.clock)
            await self._api.network.listen(listen, factory)
            self._begin(self._send_webhook)
        if path is not None:
            self._begin(partial(self._follow, path))

    def _begin(self, send: Callable[[EventReader], Awaitable[None]]) -> None:
        running = Deferred.fromCoroutine(self._run(send))
        self._running.append(running)
        running.addErrback(self._failed)

    async def stop(self) -> None:
        """Stop sending events; kas knows the place."""
        for running in self._running:
            running.cancel()
        if self._counting:
            self._counting = False
            self._api.metrics.unregister(self)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        yield CounterMetricFamily(
            "agentk_cluster_audit_events",
            "Events of the API server's audit log that kas has stored.",
            value=self._events,
        )
        follower = self._follower
        yield CounterMetricFamily(
            "agentk_cluster_audit_events_left_out",
            "Events, or lines and files, of the API server's audit log that agentk "
            "could not read, or had no room for.",
            value=self._left_out
            + self._webhook.left_out
            + (0 if follower is None else follower.left_out),
        )

    async def _run(self, send: Callable[[EventReader], Awaitable[None]]) -> None:
        backoff = Backoff(self._api.random, RETRY_FIRST, RETRY_MOST)
        while True:
            since = self._api.clock.seconds()
            try:
                everything = self._options.events == "all"
                await send(EventReader(everything, await self._account()))
            except CallError as error:
                advice = ""
                if error.status in _NOTHING:
                    advice = "; enable the module cluster_audit in kas"
                self._complain(f"{error.message}{advice}")
            except OSError as error:
                self._complain(in_words(error))
            if self._api.clock.seconds() - since > GOOD_SECONDS:
                backoff.reset()
            await deferLater(self._api.clock, backoff.pause())

    async def _send_webhook(self, reader: EventReader) -> None:
        await self._webhook.run(reader, self._call, self._count)

    async def _follow(self, path: Path, reader: EventReader) -> None:
        if self._follower is not None:
            self._left_out += self._follower.left_out
        self._follower = LogFollower(
            LogFiles(path),
            reader,
            self._call,
            self._api.clock,
            lambda piece: self._count(len(piece.events)),
        )
        await self._follower.run()

    async def _account(self) -> str:
        """Return the name of agentk's user, whose requests do not bypass kas."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        client = self._api.kubernetes.as_agentk()
        found: Any = await client.json("POST", _REVIEW, review)
        try:
            return str(found["status"]["userInfo"]["username"])
        except (KeyError, TypeError):
            text = "the API server does not tell agentk's own user"
            raise CallError(Status.INTERNAL, text) from None

    async def _call(self, method: str, request: Any) -> Any:
        """
        Call kas, if the policy of the cluster's owner permits it to read the log.

        :raises CallError: PERMISSION_DENIED if the policy denies it.
        """
        client = self._api.kubernetes.as_agentk()
        client.check_right("list", "events", group="audit.k8s.io")
        kas = self._api.calls.client(_CLUSTER_AUDIT)
        return await kas.call(method, request, timeout=CALL_SECONDS)

    def _count(self, events: int) -> None:
        self._events += events
        if self._problem:
            self._problem = ""
            self._log.info("kas stores the API server's audit log again")

    def _complain(self, problem: str) -> None:
        """Log why kas gets no events, once."""
        if problem != self._problem:
            self._problem = problem
            self._log.warn(
                "kas does not get the API server's audit log: {reason}; retrying",
                reason=problem,
            )

    def _failed(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("sending the API server's audit log failed", failure)
            self._api.fail(failure.value)
