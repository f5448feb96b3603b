"""
Questions to several clusters, and their merged answer.

The memory of an answer is limited: all clusters together may send `MAX_TOTAL` bytes.
A slow cluster costs the others nothing but the wait of at most `CLUSTER_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import attrs
import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from modules.prometheus.server.agent_path import PROMETHEUS
from modules.prometheus.server.cluster_label import (
    CLUSTER,
    is_about_cluster,
    own_name,
)
from modules.prometheus.server.decomposition import (
    NotDecomposable,
    query_for_one_cluster,
)
from modules.prometheus.server.envelope import QuestionRefused, refused
from modules.prometheus.server.merging import (
    AnswerMerger,
    ClustersMerger,
    Malformed,
    PromAnswer,
    ResultMerger,
    SeriesMerger,
    TextsMerger,
    parse_answer,
)
from modules.prometheus.server.metrics import RequestMetrics
from modules.prometheus.server.parameters import PromQuestion
from modules.prometheus.wire import prometheus_pb2 as wire
from modules.prometheus.wire.endpoints import MAX_ANSWER
from tunnel.api import Access, CredentialRevoked, IServerModuleApi, PageCaller
from tunnel.errors import CallError, Status
from tunnel.toolkit.held_bytes import ByteHolder, HeldBytes, TooManyBytes
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.peer_turns import PeerTurns, TooManyTurns
from tunnel.toolkit.texts import clean

__all__ = ["MAX_CLUSTERS", "FleetQuestions"]

#: Maximum number of clusters of one question: kas checks the token for each of them.
MAX_CLUSTERS: Final = 50

#: Maximum bytes of the answers of all clusters to one question.
MAX_TOTAL: Final = 32 * 1024 * 1024

#: Maximum bytes of all answers that are incomplete or not merged yet, and of the
#: answers of one agent among them, because a cluster decides how slowly it answers.
#: Merged answers take as much again.
MAX_HELD: Final = 128 * 1024 * 1024
MAX_HELD_EACH: Final = 32 * 1024 * 1024

#: Clusters that are asked at the same time.
AT_ONCE: Final = 20

#: Maximum seconds that a cluster may take for its answer.  Fewer than for a question to
#: one cluster, because a slow cluster delays the answers of the others.
CLUSTER_SECONDS: Final = 60.0

#: Merged answers at once, of one user and of all: each has up to `AT_ONCE` calls, and
#: `HeldBytes` limits their bytes.
MAX_OF_USER: Final = 2
MAX_AT_ONCE: Final = 50
MAX_WAITING: Final = 50
WAIT_SECONDS: Final = 30.0

#: Maximum number of characters of one warning, and of warnings of one cluster.
MAX_WARNING: Final = 500
MAX_WARNINGS: Final = 10

PARAMETER: Final = "clusters"


@attrs.frozen
class _Failure:
    """Why a cluster is missing in an answer."""

    cluster: str
    status: int
    message: str
    kind: str = ""


@attrs.define(eq=False)
class _Answering:
    """A question whose answer is not complete yet."""

    credentials: frozenset[str]
    answer: Deferred[bytes]
    is_revoked: bool = False


class FleetQuestions:
    """
    Answers of several clusters as one.

    :param now: returns the time in seconds since 1970.
    """

    def __init__(
        self,
        api: IServerModuleApi,
        metrics: RequestMetrics,
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._now = now
        self._turns: PeerTurns[str] = PeerTurns(
            clock,
            of_peer=MAX_OF_USER,
            of_all=MAX_AT_ONCE,
            most_waiting=MAX_WAITING,
            seconds=WAIT_SECONDS,
        )
        self._memory = HeldBytes(MAX_HELD_EACH, MAX_HELD)
        self._answering: set[_Answering] = set()

    async def answer(self, question: PromQuestion, caller: PageCaller) -> bytes:
        """
        Return the merged answer.

        :raises QuestionRefused: the question is refused, or no cluster answered.
        """
        if not question.endpoint.fleet:
            raise QuestionRefused(
                404,
                f"{question.path} does not answer for several clusters; ask one at "
                "/agents/NAME/prometheus",
            )
        names, question = _clusters_of(question)
        merger = _merger_of(question)
        question = self._at_one_time(_for_one_cluster(question))
        accesses, failures = await _accesses(caller, names)
        if not accesses:
            raise _of_failures(failures)
        answering = _Answering(
            frozenset(one.credential_id for one in accesses),
            Deferred.fromCoroutine(self._in_turn(question, accesses, failures, merger)),
        )
        self._answering.add(answering)
        try:
            return await answering.answer
        except CancelledError:
            if not answering.is_revoked:
                raise
            raise QuestionRefused(401, "the credential was revoked") from None
        finally:
            self._answering.discard(answering)

    def revoked(self, event: CredentialRevoked) -> None:
        """End the questions with a revoked credential."""
        for answering in tuple(self._answering):
            if event.credential_id in answering.credentials:
                answering.is_revoked = True
                answering.answer.cancel()

    async def _in_turn(
        self,
        question: PromQuestion,
        accesses: Sequence[Access],
        failures: list[_Failure],
        merger: AnswerMerger,
    ) -> bytes:
        try:
            async with self._turns.turn(accesses[0].owner):
                with self._memory.holder() as held:
                    return await self._merged(
                        question, accesses, failures, merger, held
                    )
        except TooManyTurns as error:
            raise QuestionRefused(429, f"too many questions: {error}") from None

    def _at_one_time(self, question: PromQuestion) -> PromQuestion:
        """Let all clusters evaluate an instant query at the same time."""
        if question.endpoint.name != "query" or question.value("time"):
            return question
        rest = [one for one in question.parameters if one[0] != "time"]
        at = ("time", f"{self._now():.3f}")
        return attrs.evolve(question, parameters=(*rest, at))

    async def _merged(
        self,
        question: PromQuestion,
        accesses: Sequence[Access],
        failures: list[_Failure],
        merger: AnswerMerger,
        held: ByteHolder,
    ) -> bytes:
        most = min(MAX_TOTAL // len(accesses), MAX_ANSWER)
        asked = [partial(self._ask, question, one, most, held) for one in accesses]
        warnings: list[str] = []
        infos: list[str] = []
        answered = False
        for access, found in zip(
            accesses, await in_parallel(asked, AT_ONCE), strict=True
        ):
            name = access.agent_name
            if isinstance(found, PromAnswer):
                try:
                    merger.add(name, found.data)
                except Malformed as error:
                    failures.append(_Failure(name, 503, str(error)))
                else:
                    answered = True
                    warnings += _of_cluster(name, found.warnings)
                    infos += _of_cluster(name, found.infos)
            else:
                failures.append(found)
        self._metrics.missing += len(failures)
        if not answered:
            raise _of_failures(failures)
        missing = [_missing(one) for one in failures]
        answer: dict[str, Any] = {
            "status": "success",
            "data": msgspec.Raw(merger.merged()),
        }
        if missing or warnings:
            answer["warnings"] = missing + warnings
        if infos:
            answer["infos"] = infos
        return msgspec.json.encode(answer)

    async def _ask(
        self, question: PromQuestion, access: Access, most: int, held: ByteHolder
    ) -> PromAnswer | _Failure:
        """Return the answer of one cluster, or why it is missing."""
        name = access.agent_name
        try:
            status, body = await self._body(question, access, most, held)
            answer = parse_answer(body)
        except CallError as error:
            said = refused(error)
            return _Failure(name, said.status, str(said))
        except Malformed as malformed:
            return _Failure(name, 503, str(malformed))
        if answer.status != "success":
            return _Failure(name, status, answer.error, answer.error_type)
        return answer

    async def _body(
        self, question: PromQuestion, access: Access, most: int, held: ByteHolder
    ) -> tuple[int, bytes]:
        client = self._api.calls.client(PROMETHEUS, access.agent_id, access)
        asked = wire.Question(path=question.path, form=question.form, max_bytes=most)
        status, body = 0, bytearray()
        stream = client.stream("Ask", asked, timeout=CLUSTER_SECONDS)
        async with aclosing(stream) as parts:
            async for part in parts:
                status = status or part.head.status
                try:
                    held.take(access.agent_id, len(part.data))
                except TooManyBytes as error:
                    raise CallError(Status.RESOURCE_EXHAUSTED, str(error)) from None
                body += part.data
                if len(body) > most:
                    raise CallError(
                        Status.OUT_OF_RANGE, f"its response has more than {most} bytes"
                    )
        return status, bytes(body)


def _clusters_of(question: PromQuestion) -> tuple[list[str], PromQuestion]:
    """Return the named clusters, and the question without their names."""
    said = question.value(PARAMETER)
    names = list(dict.fromkeys(one.strip() for one in said.split(",") if one.strip()))
    if not 1 <= len(names) <= MAX_CLUSTERS:
        raise QuestionRefused(
            400,
            f"the parameter {PARAMETER} names 1 to {MAX_CLUSTERS} clusters, separated "
            "by commas",
        )
    rest = tuple(one for one in question.parameters if one[0] != PARAMETER)
    return names, attrs.evolve(question, parameters=rest)


def _for_one_cluster(question: PromQuestion) -> PromQuestion:
    """
    Return the question for each cluster.

    :raises QuestionRefused: the question combines series of different clusters.
    """
    path = question.path
    if question.label == CLUSTER:
        # See `ClustersMerger`.
        path = "/api/v1/labels"
    elif is_about_cluster(question.label):
        path = f"/api/v1/label/{own_name(question.label)}/values"
    parameters = tuple(
        (name, _query_for_one_cluster(name, value))
        if name in ("query", "match[]")
        else (name, value)
        for name, value in question.parameters
    )
    return attrs.evolve(question, path=path, parameters=parameters)


def _query_for_one_cluster(parameter: str, query: str) -> str:
    try:
        return query_for_one_cluster(query)
    except NotDecomposable as error:
        raise QuestionRefused(
            422, f"the {parameter} cannot be answered cluster by cluster: {error}"
        ) from None


def _merger_of(question: PromQuestion) -> AnswerMerger:
    said = question.value("limit") or "0"
    if not said.isdecimal() or len(said) > 9:
        raise QuestionRefused(400, "limit is not a number")
    limit = int(said)
    name = question.endpoint.name
    if name == "series":
        return SeriesMerger(limit)
    if question.label == CLUSTER:
        return ClustersMerger(limit)
    if name == "labels":
        return TextsMerger(limit, are_names=True)
    if name == "label_values":
        return TextsMerger(limit, are_names=False)
    return ResultMerger()


async def _accesses(
    caller: PageCaller, names: Sequence[str]
) -> tuple[list[Access], list[_Failure]]:
    """Return the rights of the user, each agent once, and the agents without them."""

    async def check(name: str) -> Access | _Failure:
        try:
            return await caller.access_of(name)
        except CallError as error:
            said = refused(error)
            return _Failure(name, said.status, str(said))

    found: Sequence[Any] = await in_parallel(
        [partial(check, name) for name in names], AT_ONCE
    )
    accesses = {one.agent_id: one for one in found if isinstance(one, Access)}
    return list(accesses.values()), [one for one in found if isinstance(one, _Failure)]


def _of_failures(failures: Sequence[_Failure]) -> QuestionRefused:
    """Return the error for an answer without any cluster."""
    codes = {one.status for one in failures}
    status = codes.pop() if len(codes) == 1 else 503
    return QuestionRefused(
        status, "no cluster answered: " + "; ".join(_missing(one) for one in failures)
    )


def _missing(one: _Failure) -> str:
    said = f"{one.kind}: {one.message}" if one.kind else one.message
    return f"cluster {one.cluster[:100]} is missing: {clean(said, MAX_WARNING)}"


def _of_cluster(name: str, texts: Sequence[str] | None) -> list[str]:
    return [
        f"cluster {name}: {clean(one, MAX_WARNING)}"
        for one in (texts or ())[:MAX_WARNINGS]
    ]
