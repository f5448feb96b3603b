"""What GitLab refused, shared through Redis."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.gitlab.cache import PATIENCE as SERVES
from kas.gitlab.cache import AnswerCache, Lifetimes
from kas.gitlab.refusals import MAX_MESSAGE, MAX_VALUE, PATIENCE, SharedRefusals
from kas.redis import RedisRefused, RedisUnavailable
from tunnel.errors import CallError, Status

KEY = b"\x00\xffhash"
PLACE = b"gitlab-kas:txkas1:agent_info_errs:" + KEY
TIMES = Lifetimes(success=300.0, error=60.0, outage=1000.0)


@attrs.define
class OneRedis:
    """GET and SET of the Redis that all kas have."""

    clock: Clock
    values: dict[bytes, tuple[bytes, float]] = attrs.field(factory=dict)
    commands: list[tuple[Any, ...]] = attrs.field(factory=list)
    broken: Exception | None = None
    hangs: bool = False

    def call(self, *command: Any) -> Deferred[Any]:
        """See `RedisClient`."""
        self.commands.append(command)
        if self.hangs:
            return Deferred()
        if self.broken is not None:
            return fail(self.broken)
        name, key, *rest = command
        if name == "SET":
            value, unit, milliseconds = rest
            assert unit == "PX"
            self.values[key] = value, self.clock.seconds() + milliseconds / 1000
            return succeed("OK")
        value, until = self.values.get(key, (None, 0.0))
        return succeed(value if self.clock.seconds() < until else None)


class RefusalTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.redis = OneRedis(self.clock)
        self.asked = 0
        self.says: CallError | str = CallError(Status.UNAUTHENTICATED, "no such token")
        self.one, self.other = self.make(), self.make()
        self.proven = True

    def make(self) -> AnswerCache[str, str]:
        redis: Any = self.redis
        shared = SharedRefusals(
            *(redis, "gitlab-kas", "agent_info_errs", self.clock), lambda: self.proven
        )
        return AnswerCache(self.ask, TIMES, self.clock, refusals=shared)

    async def ask(self, subject: str) -> str:
        self.asked += 1
        if isinstance(self.says, CallError):
            raise self.says
        return self.says

    def get(self, cache: AnswerCache[str, str]) -> str:
        """The answer, or what is said of the refusal."""
        try:
            answer = cache.get(KEY, "secret")
        except CallError as error:
            return error.message
        self.clock.advance(0)
        if isinstance(answer, Deferred):
            found: list[Any] = []
            answer.addBoth(found.append)
            self.assertTrue(found)
            return str(getattr(found[0], "value", found[0]))
        return answer

    def test_of_a_kas_that_gitlab_does_not_take(self) -> None:
        """Its secret or its clock is wrong: the others hear nothing of it."""
        self.proven = False
        self.assertEqual(self.get(self.one), "no such token")
        self.assertEqual(self.redis.values, {})
        self.says = "yes"
        self.assertEqual(self.get(self.other), "yes")

    def test_shared(self) -> None:
        """One question for all kas, until the refusal ends for all of them."""
        for _ in range(3):
            for cache in (self.one, self.other):
                self.assertEqual(self.get(cache), "no such token")
            self.clock.advance(10)
        self.assertEqual(self.asked, 1)
        self.assertEqual(list(self.redis.values), [PLACE])
        self.assertNotIn("secret", str(self.redis.commands))
        self.clock.advance(30)
        self.says = "yes"
        self.assertEqual((self.get(self.other), self.get(self.one)), ("yes", "yes"))
        self.assertEqual(self.asked, 3)

    def test_end(self) -> None:
        """What another kas heard serves here hardly longer than there."""
        self.get(self.one)
        self.clock.advance(59)
        self.assertEqual(self.get(self.other), "no such token")
        self.says = "yes"
        self.clock.advance(SERVES)
        self.assertEqual(self.get(self.other), "yes")
        self.assertEqual(self.asked, 2)

    def test_renewed(self) -> None:
        """Whoever is connected is asked about at GitLab itself; all hear the answer."""
        self.get(self.one)
        renewing = self.other.renew(KEY, "secret")
        self.clock.advance(0)
        self.failureResultOf(renewing, CallError)
        self.assertEqual(self.asked, 2)

    def test_renewed_while_redis_is_asked(self) -> None:
        """The answer of Redis to a question under way is not taken for GitLab's."""
        self.get(self.one)
        self.says = "yes"
        waiting: Any = self.other.get(KEY, "secret")
        renewing = self.other.renew(KEY, "secret")
        self.clock.advance(0)
        self.failureResultOf(waiting, CallError)
        self.clock.advance(0)
        self.assertEqual(self.successResultOf(renewing), "yes")

    def test_statuses(self) -> None:
        """Each refusal comes as it was said; what is no refusal is not shared."""
        for status in (Status.PERMISSION_DENIED, Status.NOT_FOUND):
            self.says = CallError(status, f"no: {status}")
            self.one, self.other = self.make(), self.make()
            self.redis.values.clear()
            self.get(self.one)
            waiting: Any = self.other.get(KEY, "secret")
            self.clock.advance(0)
            error = self.failureResultOf(waiting, CallError).value
            self.assertEqual((error.status, error.message), (status, f"no: {status}"))
        self.assertEqual(self.asked, 2)
        self.redis.values.clear()
        self.one, self.says = self.make(), CallError(Status.UNAVAILABLE, "away")
        self.get(self.one)
        self.assertEqual(self.redis.values, {})

    def test_redis_down(self) -> None:
        """Nothing is shared then, and nobody waits."""
        for broken in (RedisUnavailable("down"), RedisRefused("NOPERM", "GET")):
            self.redis.broken = broken
            self.asked = 0
            for cache in (self.make(), self.make()):
                self.assertEqual(self.get(cache), "no such token")
            self.assertEqual(self.asked, 2)

    def test_redis_hangs(self) -> None:
        """It is waited for so long and no longer; one who leaves leaves no timer."""
        self.redis.hangs = True
        waiting: Any = self.one.get(KEY, "secret")
        self.clock.advance(0)
        self.clock.advance(PATIENCE - 0.1)
        self.assertNoResult(waiting)
        self.clock.advance(0.1)
        self.failureResultOf(waiting, CallError)
        waiting = self.other.get(KEY, "secret")
        self.clock.advance(0)
        waiting.cancel()
        self.failureResultOf(waiting)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unreadable(self) -> None:
        """What is not ours is nothing; a text is bounded, both ways."""
        for value in (b"", b"401", b"500 no", b"\xff\xfe", b"401 " + b"x" * MAX_VALUE):
            self.redis.values[PLACE] = value, 1000.0
            self.asked = 0
            self.get(self.make())
            self.assertEqual(self.asked, int(value != b"401"), value)
            self.redis.values.clear()
        self.says = CallError(Status.UNAUTHENTICATED, "é" * 10_000)
        self.get(self.one)
        self.assertLess(len(self.redis.values[PLACE][0]), MAX_VALUE)
        self.assertLessEqual(len(self.get(self.make())), MAX_MESSAGE)
