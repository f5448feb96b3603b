"""
Usage reports to GitLab: every kas counts, and one kas sends the reports.

Each kas writes its counts of a period to the shared store, as a separate batch.  Once
in a period, one kas sends all batches, and deletes them after GitLab has accepted them.
Therefore no count is lost if Redis or GitLab is unavailable, or if a kas ends; a batch
that was sent right before its sender died is sent twice.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tunnel.api import IStore, Usage
from tunnel.errors import CallError, Status
from tunnel.toolkit.repeated import Repeated
from tunnel.toolkit.texts import clean

__all__ = ["UsageReport", "used_via"]

#: Path of GitLab's internal API.
PATH = "usage_metrics"

#: Maximum number of counted names, and maximum number of different ids of each name, in
#: one period; further names and ids are ignored.
MAX_NAMES = 100
MAX_IDS = 10_000

#: Maximum number of ids of one batch: an id takes at most 21 bytes, and a stored value
#: may be at most 64 KiB long.
MAX_BATCH_IDS = 2000

#: Maximum number of batches in one request, which take about 1 MiB.
MAX_SENT = 100

#: Maximum number of batches that this kas keeps during an outage of the store: the
#: batches of one day.  Later counts stay in one batch until the store is available
#: again.
MAX_PENDING = 1440

#: Seconds during which kas keeps a batch that GitLab refuses.
KEPT = 7 * 24 * 3600.0

#: Maximum characters of a key of the store in a log line.
MAX_SHOWN = 200

#: Share of a period during which no other kas sends after one kas has begun to send.
SENDER = 0.9


#: Type of a batch: counters by name, and ids by name.
_Batch: TypeAlias = tuple[Mapping[str, int], Mapping[str, set[int]]]


@attrs.define
class _Counts:
    counters: Counter[str] = attrs.field(factory=Counter)
    unique: dict[str, set[int]] = attrs.field(factory=dict)

    def add(self, usage: Usage) -> None:
        """Count one use, within the limits."""
        for name in usage.counters:
            if name in self.counters or len(self.counters) < MAX_NAMES:
                self.counters[name] += 1
        for name, id_ in usage.unique:
            ids = self.unique.get(name)
            if ids is None:
                if len(self.unique) >= MAX_NAMES:
                    continue
                ids = self.unique[name] = set()
            if len(ids) < MAX_IDS:
                ids.add(id_)

    def merge(self, batch: _Batch) -> None:
        """Add the counts of a batch."""
        counters, unique = batch
        self.counters.update(counters)
        for name, ids in unique.items():
            self.unique.setdefault(name, set()).update(ids)

    def body(self) -> dict[str, Any]:
        """Return the body of a report to GitLab."""
        return {
            "counters": dict(self.counters),
            "unique_counters": {name: sorted(ids) for name, ids in self.unique.items()},
        }

    def batches(self) -> Iterator[bytes]:
        """Yield the usage in batches that can be stored."""
        counters = dict(self.counters)
        for name, ids in self.unique.items():
            ordered = sorted(ids)
            for begin in range(0, len(ordered), MAX_BATCH_IDS):
                part = {name: ordered[begin : begin + MAX_BATCH_IDS]}
                yield _dumped(counters, part)
                counters = {}
        if counters:
            yield _dumped(counters, {})


def _dumped(counters: Mapping[str, int], unique: Mapping[str, list[int]]) -> bytes:
    return json.dumps({"counters": counters, "unique_counters": unique}).encode()


def _read(value: bytes) -> _Batch:
    """
    Return the counters, and the ids by name, of a stored batch.

    :raises ValueError: if *value* is not a batch.
    """
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    match found:
        case {"counters": dict(counters), "unique_counters": dict(unique)}:
            if not all(isinstance(ids, list) for ids in unique.values()):
                raise ValueError("ids are not a list")
            numbers = [*counters.values(), *chain.from_iterable(unique.values())]
            # GitLab accepts numbers of up to 63 bits.
            if all(type(one) is int and 0 <= one < 2**63 for one in numbers):
                return counters, {name: set(ids) for name, ids in unique.items()}
            raise ValueError("a number is not an integer, or is out of range")
    raise ValueError("it does not consist of counters and ids")


def used_via(kind: str, user_id: int, agent_id: int) -> Usage:
    """
    Return the usage that is counted for one request.

    :param kind: the kind of credential: ``ci``, ``user`` or ``pat``.
    """
    unique = "k8s_api_proxy_requests_unique_{}_via_{}_access"
    of_jobs = (("agent_users_using_ci_tunnel", user_id),) if kind == "ci" else ()
    return Usage(
        counters=(
            "k8s_api_proxy_request",
            f"k8s_api_proxy_requests_via_{kind}_access",
        ),
        unique=(
            (unique.format("users", kind), user_id),
            (unique.format("agents", kind), agent_id),
            *of_jobs,
        ),
    )


class UsageReport:
    """
    Counter of usage, which reports the counts every *period* seconds.

    :param post: posts a body to a path of GitLab's internal API.
    :param store: the store that all kas share.
    :param me: a unique name of this kas.
    """

    _log = Logger()

    def __init__(
        self,
        post: Callable[[str, Mapping[str, Any]], Awaitable[object]],
        store: IStore,
        me: str,
        period: float,
        clock: IReactorTime,
    ) -> None:
        self._post = post
        self._store = store
        self._me = me
        self._period = period
        self._counts = _Counts()
        #: Batches that are not known to be stored yet, with key and content.
        self._pending: deque[tuple[str, bytes]] = deque()
        self._number = 0
        self._problem = ""
        self._loop = Repeated(clock, "reporting usage", self._tick)

    def count(self, usage: Usage) -> None:
        """Count one use."""
        self._counts.add(usage)

    def start(self) -> None:
        """Start to report."""
        self._loop.start(self._period)

    async def stop(self) -> None:
        """Stop reporting; store the counts, so that another kas sends them."""
        self._loop.stop()
        try:
            await self._save()
        except CallError as error:
            self._failed("save", error)

    def _tick(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._report())

    async def _report(self) -> None:
        try:
            await self._save()
            await self._store.set(
                "sender",
                self._me.encode(),
                version=0,
                expires_after=self._period * SENDER,
            )
            while await self._send():
                pass
            self._problem = ""
        except CallError as error:
            # ABORTED means that another kas sends in this period.
            if error.status is not Status.ABORTED:
                self._failed("report", error)
        except Exception:
            self._log.failure("reporting usage failed")

    async def _save(self) -> None:
        if len(self._pending) < MAX_PENDING:
            counts, self._counts = self._counts, _Counts()
            for batch in counts.batches():
                self._number += 1
                self._pending.append((f"batch/{self._me}/{self._number}", batch))
        while self._pending:
            key, batch = self._pending[0]
            try:
                await self._store.set(key, batch, version=0, expires_after=KEPT)
            except CallError as error:
                # ABORTED means that an earlier attempt, which seemed to fail, has
                # stored the batch.
                if error.status is not Status.ABORTED:
                    raise
            self._pending.popleft()

    async def _send(self) -> bool:
        """
        Send at most `MAX_SENT` stored batches as one report, and delete them.

        :returns: whether further batches may be stored.
        """
        keys: list[str] = []
        async for page in self._store.keys("batch/", limit=MAX_SENT):
            keys = page
            break
        together = _Counts()
        for key in keys:
            stored = await self._store.get(key)
            if stored is None:
                continue
            try:
                together.merge(_read(stored.value))
            except ValueError as error:
                # Delete the invalid batch together with the others, because it would
                # prevent all reports.
                self._log.warn(
                    "ignoring invalid usage in the store at {key}: {problem}",
                    key=clean(key, MAX_SHOWN),
                    problem=str(error),
                )
        if together.counters or together.unique:
            await self._post(PATH, together.body())
        for key in keys:
            await self._store.delete(key)
        return len(keys) == MAX_SENT

    def _failed(self, doing: str, error: CallError) -> None:
        problem = str(error)
        if problem != self._problem:
            self._problem = problem
            self._log.warn(
                "cannot {doing} usage; it will be retried: {problem}",
                doing=doing,
                problem=problem,
            )
