"""Functions behind kas' calls: users' queries, and the search for Prometheus."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from modules.prometheus.agent.body_parts import BodyParts
from modules.prometheus.agent.metrics import QuestionMetrics
from modules.prometheus.agent.rights import AskingRights
from modules.prometheus.agent.search import (
    MAX_PROBE,
    PrometheusSearch,
    SearchResult,
)
from modules.prometheus.agent.service_client import ClusterServiceClient
from modules.prometheus.agent.services import ServiceTarget
from modules.prometheus.wire import prometheus_pb2 as wire
from modules.prometheus.wire.endpoints import MAX_ANSWER, endpoint_of
from modules.prometheus.wire.settings import PrometheusSection, PrometheusService
from tunnel.api import Access, AgentScope, IKubernetes
from tunnel.errors import CallError, Status
from tunnel.http1 import ResponseHead, UpstreamError
from tunnel.toolkit.peer_turns import PeerTurns, TooManyTurns
from tunnel.toolkit.single_flight import SingleFlight
from tunnel.toolkit.texts import clean

__all__ = ["Questions"]

#: Lifetime of the result of a search, in seconds: with one Service, and without.
FOUND_SECONDS: Final = 300.0
MISSING_SECONDS: Final = 30.0

#: Maximum bytes of one part of a response, which becomes one message.
PART: Final = 32 * 1024

#: Maximum bytes of the parameters; the longest queries of dashboards have some 10 KiB.
MAX_FORM: Final = 1024 * 1024

#: Questions at once: Prometheus evaluates 20 by default, and has other clients.
MAX_AT_ONCE: Final = 8

#: Questions of one user at once.
MAX_OF_USER: Final = 4

#: Questions of one user that wait: a dashboard has about thirty panels, which ask at
#: once.
MAX_WAITING: Final = 100

#: Maximum seconds that a question waits; after that, a browser shows the error.
WAIT_SECONDS: Final = 30.0

#: Seconds for the answer of a candidate to a probe.
PROBE_SECONDS: Final = 10.0


@attrs.frozen
class _Searched:
    result: SearchResult
    at: float


class Questions:
    """
    Implementation of `Prometheus`.

    :param reach_of: returns the path to a Service.
    """

    _log = Logger()

    def __init__(
        self,
        kubernetes: IKubernetes,
        clock: IReactorTime,
        reach_of: Any,
    ) -> None:
        self._kubernetes = kubernetes
        self._clock = clock
        self._client_of = reach_of
        self._rights = AskingRights(kubernetes, clock)
        self._turns: PeerTurns[str] = PeerTurns(
            clock,
            of_peer=MAX_OF_USER,
            of_all=MAX_AT_ONCE,
            most_waiting=MAX_WAITING,
            seconds=WAIT_SECONDS,
        )
        self.metrics = QuestionMetrics(self._turns)
        self._setting: PrometheusService | None = None
        self._scope = AgentScope()
        self._searched: _Searched | None = None
        self._searching = SingleFlight(self._search)

    def apply(self, section: PrometheusSection) -> None:
        """Use the settings from Git; the next question searches again."""
        self._setting = section.service
        self._searched = None

    def limit(self, scope: AgentScope) -> None:
        """Search only in a scope from now on."""
        self._scope, self._searched = scope, None

    # The search.

    async def _search(self) -> _Searched:
        setting, scope = self._setting, self._scope
        search = PrometheusSearch(self._kubernetes.as_agentk(), self._probe, scope)
        result = await search.search(setting)
        searched = _Searched(result, self._clock.seconds())
        # Settings that changed during the search need another one.
        if (setting, scope) == (self._setting, self._scope):
            before, self._searched = self._searched, searched
            self.metrics.found = result.target is not None
            if before is None or before.result.target != result.target:
                self._log.info(
                    "Prometheus of this cluster: {target}",
                    target=result.target.service if result.target else result.problem,
                )
        return searched

    async def _found(self, again: bool = False) -> _Searched:
        searched = self._searched
        if searched is not None and not again:
            lasts = FOUND_SECONDS if searched.result.target else MISSING_SECONDS
            if self._clock.seconds() - searched.at < lasts:
                return searched
        return await self._searching.get()

    async def _probe(
        self, target: ServiceTarget, path: str, form: str
    ) -> tuple[int, bytes]:
        parts = BodyParts(self._clock, PROBE_SECONDS)
        body = b""
        try:
            head = await parts.begin(
                lambda one: self._client(target).send(target, path, form, False, one)
            )
            async for part in parts.parts():
                body += part
                if len(body) > MAX_PROBE:
                    break
        except UpstreamError as error:
            raise CallError(Status.UNAVAILABLE, str(error)) from None
        finally:
            parts.close()
        if head.status >= 400:
            _check_status(body)
        return head.status, body

    def _client(self, target: ServiceTarget) -> ClusterServiceClient:
        client: ClusterServiceClient = self._client_of(target)
        return client

    async def find(self, request: wire.FindRequest, call: Any) -> wire.Trail:
        """
        Return the search, step by step, to an operator or to a user who may see all
        Services.

        :raises CallError: PERMISSION_DENIED for other users, whom names of Services do
            not concern.
        """
        access: Access | None = call.access
        if access is not None and not await self._rights.may_list_services(access):
            raise CallError(
                Status.PERMISSION_DENIED,
                f"{access.who} may not see the search: the right to list services in "
                "all namespaces is missing",
            )
        searched = await self._found(request.again)
        return _trail(searched.result, self._clock.seconds() - searched.at)

    # Questions.

    async def ask(
        self, request: wire.Question, call: Any
    ) -> AsyncGenerator[wire.Part, None]:
        """
        Send a request to Prometheus, and yield its response.

        :raises CallError: the user may not ask, too many questions run, or Prometheus
            did not respond.
        """
        result = "failed"
        try:
            async with aclosing(self._ask(request, call.access)) as parts:
                async for part in parts:
                    yield part
            result = "answered"
        except CallError as error:
            if error.status in (Status.PERMISSION_DENIED, Status.RESOURCE_EXHAUSTED):
                result = "refused"
            raise
        finally:
            self.metrics.results[result] += 1

    async def _ask(
        self, request: wire.Question, access: Access | None
    ) -> AsyncGenerator[wire.Part, None]:
        # kas has checked this; agentk does not rely on it.
        found = endpoint_of(request.path)
        if found is None or len(request.form) > MAX_FORM:
            raise CallError(
                Status.INVALID_ARGUMENT, "the path or the size is not permitted"
            )
        if access is None:
            raise CallError(Status.PERMISSION_DENIED, "the question has no user")
        endpoint, _ = found
        target = await self._target(access)
        await self._rights.check(access, target)
        most = min(request.max_bytes or MAX_ANSWER, MAX_ANSWER)
        try:
            async with self._turns.turn(access.owner):
                async with aclosing(
                    self._answer(target, request, endpoint.form, most)
                ) as parts:
                    async for part in parts:
                        yield part
        except TooManyTurns as error:
            raise CallError(
                Status.RESOURCE_EXHAUSTED, f"too many questions: {error}"
            ) from None

    async def _answer(
        self, target: ServiceTarget, request: wire.Question, post: bool, most: int
    ) -> AsyncGenerator[wire.Part, None]:
        parts = BodyParts(self._clock)
        try:
            head = await parts.begin(
                lambda one: self._client(target).send(
                    target, request.path, request.form, post, one
                )
            )
            _check_head(head, target, most)
            body = parts.parts()
            size, beginning = 0, b""
            if head.status >= 400:
                async for data in body:
                    beginning += data
                    if len(beginning) > MAX_PROBE:
                        break
                _check_status(beginning)
            yield wire.Part(head=_head(head))
            if beginning:
                yield wire.Part(data=beginning)
            async for data in body:
                size += len(data)
                if size > most:
                    raise _too_long(most)
                self.metrics.bytes += len(data)
                for start in range(0, len(data), PART):
                    yield wire.Part(data=data[start : start + PART])
        except UpstreamError as error:
            # The Service may have moved.
            self._searched = None
            raise CallError(
                Status.UNAVAILABLE, f"{target.service} does not respond: {error}"
            ) from None
        finally:
            parts.close()

    async def _target(self, access: Access) -> ServiceTarget:
        """
        Return the Service to ask.

        :raises CallError: there is none, or there are several; only users who may see
            all Services learn their names.
        """
        result = (await self._found()).result
        if result.target is not None:
            return result.target
        text = result.problem
        steps = [one for one in result.steps if one.outcome in _TOLD]
        if steps and await self._rights.may_list_services(access):
            text += "; " + "; ".join(
                f"{one.strategy}: {one.service} ({one.reason})" for one in steps
            )
        raise CallError(result.status, text)


_TOLD: Final = ("candidate", "failed", "passed over")


def _head(head: ResponseHead) -> wire.Head:
    return wire.Head(status=head.status, content_type=_field(head, b"content-type"))


def _check_head(head: ResponseHead, target: ServiceTarget, most: int) -> None:
    """
    Check that a response can be forwarded.

    :raises CallError: it is a redirect, or too long.
    """
    if 300 <= head.status < 400:
        where = _field(head, b"location")[:200]
        raise CallError(
            Status.FAILED_PRECONDITION,
            f"{target.service} redirects to {where!r}, which agentk does not follow; "
            "set prometheus.service.path in the agent's configuration",
        )
    if head.length > most:
        raise _too_long(most)


def _check_status(body: bytes) -> None:
    """
    Check that an error comes from the Service, and not from the API server before it.

    :raises CallError: UNAVAILABLE with the API server's message.
    """
    try:
        said = json.loads(body)
    except ValueError:
        return
    if isinstance(said, dict) and said.get("kind") == "Status":
        text = clean(str(said.get("message") or "refused"), 500)
        raise CallError(
            Status.UNAVAILABLE,
            f"API server: {text}; through its proxy, agentk needs the rights to get "
            "and create services/proxy",
        )


def _too_long(most: int) -> CallError:
    return CallError(
        Status.OUT_OF_RANGE,
        f"the response has more than {most} bytes; ask for fewer series or points",
    )


def _field(head: ResponseHead, name: bytes) -> str:
    prefix = b"\r\n" + name + b":"
    lines = head.fields
    start = lines.lower().find(prefix)
    if start < 0:
        return ""
    value = lines[start + len(prefix) :].partition(b"\r\n")[0]
    return value.strip().decode("latin-1")


def _trail(result: SearchResult, age: float) -> wire.Trail:
    target = result.target
    return wire.Trail(
        steps=[
            wire.Step(
                strategy=one.strategy,
                service=one.service,
                outcome=one.outcome,
                reason=one.reason,
            )
            for one in result.steps
        ],
        target=None
        if target is None
        else wire.Target(
            namespace=target.namespace,
            name=target.name,
            port=target.port_text,
            scheme=target.scheme,
            path=target.path,
        ),
        problem=result.problem,
        age=age,
    )
