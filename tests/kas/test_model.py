"""
Several kas, their agents, Redis and the links between, in any order of misfortunes.

The code is the real one but for sockets and Redis (`tests.kas.model`).  Hypothesis
chooses what happens; what has to hold is said in `model_requests` and `model_checks`.
"""

from __future__ import annotations

import os
from collections import defaultdict

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from twisted.internet.defer import Deferred

from kas.directory.cache import LOOK_INTERVAL
from kas.routing.router import ROUTING_TIMEOUT
from tests.kas.many import GRACE, Kas
from tests.kas.model import Execution, ModelAgent, World
from tests.kas.model_checks import (
    GatewayGuard,
    check_nothing_left,
    check_routes,
    knows_enough,
)
from tests.kas.model_requests import Request, Requests
from tests.kas.model_store import LEASE_SECONDS
from tunnel.errors import ErrorCode

AGENTS = ("7", "8")
COUNT = 3

#: Live runs of agentk, and requests that run, at most: more find nothing more.
MAX_AGENTS, MAX_REQUESTS = 5, 12

#: Until a silent connection is given up, with time to come back.
DEAD_SECONDS = 40.0

SEEDS = st.integers(0, 999)


class Misfortunes(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = Requests()
        self.world = World(self.requests.executed)
        self.runs: dict[int, int] = defaultdict(int)
        self.instances = 0
        self.draining: list[Kas] = []
        self.guard = GatewayGuard(self.requests.problems)

    @initialize()
    def begin(self) -> None:
        for number in range(1, COUNT + 1):
            self.start(number)
        for number, id_ in enumerate(AGENTS):
            self.agent_connects(id_, number)

    def start(self, number: int) -> None:
        self.runs[number] += 1
        self.guard.watch(self.world.start_kas(number, 100 + self.runs[number]))

    # Helpers.

    def kas_at(self, seed: int) -> Kas:
        return self.world.kas[seed % len(self.world.kas)]

    def agent_at(self, seed: int) -> ModelAgent:
        return self.live[seed % len(self.live)]

    @property
    def live(self) -> list[ModelAgent]:
        return [one for one in self.world.agents if not one.dead]

    @property
    def running(self) -> list[Request]:
        return self.requests.running

    @property
    def answerable(self) -> list[Execution]:
        return [one for agent in self.live for one in agent.executions if one.running]

    # Agents.

    @precondition(lambda self: len(self.live) < MAX_AGENTS)
    @rule(id_=st.sampled_from(AGENTS), seed=SEEDS)
    def agent_connects(self, id_: str, seed: int) -> None:
        self.instances += 1
        instance = self.instances.to_bytes(16, "big")
        agent = ModelAgent(self.world, self.kas_at(seed), id_, instance)
        self.world.agents.append(agent)
        self.world.settle()

    @precondition(lambda self: self.live)
    @rule(seed=SEEDS, to=SEEDS, silently=st.booleans())
    def agent_roams(self, seed: int, to: int, silently: bool) -> None:
        agent = self.agent_at(seed)
        agent.at = self.kas_at(to)
        agent.lose(silently)

    @precondition(lambda self: self.live)
    @rule(seed=SEEDS, silently=st.booleans())
    def agent_dies(self, seed: int, silently: bool) -> None:
        """Its process, or its whole node: nobody closes the connection then."""
        agent = self.agent_at(seed)
        agent.dead = True
        if silently:
            for link in self.world.links:
                if link.near is agent.process:
                    link.pipe.cut = True
        agent.process.die()

    @precondition(lambda self: self.live)
    @rule(seed=SEEDS)
    def agent_stops(self, seed: int) -> None:
        agent = self.agent_at(seed)
        agent.dead = True
        Deferred.fromCoroutine(agent.dialer.stop(5.0))
        self.world.settle()

    # kas.

    @precondition(lambda self: len(self.world.kas) > 1)
    @rule(seed=SEEDS, again=st.booleans())
    def kas_is_killed(self, seed: int, again: bool) -> None:
        kas = self.kas_at(seed)
        self.world.kill_kas(kas)
        self._forget(kas)
        if again:
            self.start(kas.number)

    def _forget(self, kas: Kas) -> None:
        if kas in self.draining:
            self.draining.remove(kas)
        self.requests.forget(kas)

    @precondition(lambda self: len(self.world.kas) < COUNT)
    @rule()
    def kas_starts(self) -> None:
        numbers = {kas.number for kas in self.world.kas}
        self.start(next(one for one in range(1, COUNT + 1) if one not in numbers))

    @precondition(lambda self: len(self.world.kas) - len(self.draining) > 1)
    @rule(seed=SEEDS)
    def kas_drains(self, seed: int) -> None:
        kas = self.kas_at(seed)
        if kas in self.draining:
            return
        self.draining.append(kas)
        self.world.listeners.pop(kas.agents_url, None)
        kas.balance.send_away(kas.registry, "kas stops", deadline=20.0)
        self.world.settle()

    @precondition(lambda self: self.draining and len(self.world.kas) > 1)
    @rule()
    def kas_exits(self) -> None:
        kas = self.draining.pop()
        kas.router.keeper.stop()
        for connection in kas.registry:
            connection.tunnel.end(ErrorCode.SHUTDOWN, "kas stops")
        Deferred.fromCoroutine(kas.directory.stop())
        kas.gateway.end()
        kas.peers.stop()
        self.world.listeners.pop(kas.me.url, None)
        self.world.settle()
        self.world.kill_kas(kas)
        self._forget(kas)

    @rule(seed=SEEDS)
    def kas_rebalances(self, seed: int) -> None:
        kas = self.kas_at(seed)
        here = [one for one in kas.registry if not one.leaving]
        kas.balance.send_away(here[: 1 + seed % 2], "others have fewer")
        self.world.settle()

    # Redis.

    @rule(what=st.sampled_from(["fail", "recover", "flush", "hold", "release"]))
    def redis(self, what: str) -> None:
        hub = self.world.hub
        if what == "hold":
            hub.holding = True
        elif what == "release":
            hub.holding = False
        elif what == "flush" or hub.down == (what == "recover"):
            getattr(hub, what)()
        self.world.settle()

    @rule(seed=SEEDS)
    def kas_loses_redis(self, seed: int) -> None:
        """One kas alone, or it finds it again."""
        store = self.kas_at(seed).store
        if store.cut:
            store.let_in()
        else:
            store.cut_off()
        self.world.settle()

    @precondition(lambda self: self.world.hub.holding)
    @rule(order=st.lists(st.integers(0, 9), min_size=1, max_size=5))
    def news_arrive(self, order: list[int]) -> None:
        for one in order:
            self.world.hub.deliver(lambda count, one=one: one % count)  # type: ignore[misc]
        self.world.settle()

    # Links.

    @precondition(lambda self: self.world.links)
    @rule(seed=SEEDS, silently=st.booleans())
    def link_is_cut(self, seed: int, silently: bool) -> None:
        link = self.world.links[seed % len(self.world.links)]
        if silently:
            link.pipe.cut = True
        else:
            for transport in link.pipe.transports:
                transport.loseConnection()
        self.world.settle()

    @rule(seed=SEEDS, other=SEEDS)
    def kas_cannot_reach(self, seed: int, other: int) -> None:
        pair = (self.kas_at(seed).many, self.kas_at(other).me.url)
        self.world.blocked.symmetric_difference_update({pair})

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 12.0, 35.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.later(seconds)

    # Requests.

    @precondition(lambda self: len(self.running) < MAX_REQUESTS)
    @rule(
        id_=st.sampled_from(AGENTS),
        seed=SEEDS,
        body=st.integers(0, 3000),
        fin=st.booleans(),
        idempotent=st.booleans(),
        resumable=st.booleans(),
    )
    def request(
        self,
        id_: str,
        seed: int,
        body: int,
        fin: bool,
        idempotent: bool,
        resumable: bool,
    ) -> None:
        request = self.requests.open(
            self.kas_at(seed), id_, fin, idempotent and fin, resumable
        )
        if not fin:
            request.write(body)
        self.world.settle()

    @precondition(lambda self: len(self.running) < MAX_REQUESTS)
    @rule(
        id_=st.sampled_from(AGENTS),
        seed=SEEDS,
        sent=st.integers(0, 3000),
        answered=st.sampled_from([0, 0, 5, 3000]),
        watch=st.booleans(),
    )
    def stream_begins(
        self, id_: str, seed: int, sent: int, answered: int, watch: bool
    ) -> None:
        """A watch or an exec: they last, and something may happen to them."""
        request = self.requests.open(self.kas_at(seed), id_, watch, watch, True)
        request.write(sent)
        self.world.settle()
        for execution in self.requests.executions(request):
            if execution.running and answered:
                execution.write(answered)
        self.world.settle()
        self.requests.check_bytes()

    @precondition(lambda self: self.running)
    @rule(seed=SEEDS, size=st.integers(1, 3000), fin=st.booleans())
    def client_writes(self, seed: int, size: int, fin: bool) -> None:
        request = self.running[seed % len(self.running)]
        request.write(size)
        if fin:
            request.finish()
        self.world.settle()

    @precondition(lambda self: self.running)
    @rule(seed=SEEDS)
    def client_leaves(self, seed: int) -> None:
        request = self.running[seed % len(self.running)]
        request.stream.reset()
        assert not request.runs, "who leaves is told at once"
        self.world.settle()

    @precondition(lambda self: self.answerable)
    @rule(seed=SEEDS, size=st.integers(1, 3000), fin=st.booleans())
    def agent_answers(self, seed: int, size: int, fin: bool) -> None:
        execution = self.answerable[seed % len(self.answerable)]
        execution.write(size)
        if fin:
            execution.finish()
        self.world.settle()
        self.requests.check_bytes()

    # What has to hold.

    @invariant()
    def check_requests(self) -> None:
        """Nothing is done twice, or fails by a fault of ours."""
        self.requests.check()

    def check_cut_off(self) -> None:
        """Agents of kas that are cut off from Redis alone are found all the same."""
        world = self.world
        if any(kas.store.cut for kas in world.kas):
            world.later(LEASE_SECONDS + DEAD_SECONDS, 2.0)
            self.check_reached(
                [one for one in world.kas if knows_enough(one, world.kas)]
            )
        for kas in world.kas:
            if kas.store.cut:
                kas.store.let_in()
        world.settle()

    @rule()
    def calm(self) -> None:
        """Nothing happens for a while; then everything has to be well again."""
        world = self.world
        world.blocked.clear()
        world.hub.holding = False
        if world.hub.down:
            world.hub.recover()
        world.settle()
        while len(self.draining) == len(world.kas):
            if len(world.kas) < COUNT:
                self.kas_starts()
            else:
                self.kas_exits()
        self.check_cut_off()
        for request in self.running:
            request.finish()
        for _ in range(int(ROUTING_TIMEOUT + GRACE + DEAD_SECONDS)):
            for execution in self.answerable:
                execution.finish()
            world.later(1.0, 1.0)
        world.later(GRACE, 2.0)
        self.requests.check_bytes()
        self.check_requests()
        assert not self.running, "a request does not end"
        self.check_reached(world.kas)
        ids = {agent.id for agent in self.live}
        # What a kas had no reason to ask for since events were lost may be old: the
        # first request that wants it is what begins a look-up.
        for kas in world.kas:
            for id_ in ids:
                kas.directory.routes(id_)
        world.later(LOOK_INTERVAL, LOOK_INTERVAL)
        check_routes(world.kas, ids)
        check_nothing_left(world.kas, self.live)

    def check_reached(self, all_kas: list[Kas]) -> None:
        """Every agent is reached from all of them."""
        world = self.world
        for agent in self.live:
            assert agent.dialer.ready, f"{agent.dialer.last_problem}"
        for id_ in sorted({agent.id for agent in self.live}):
            opened = [
                (kas, self.requests.open(kas, id_, True, False, False))
                for kas in all_kas
            ]
            for _ in range(20):
                for execution in self.answerable:
                    execution.finish()
                world.later(0.1, 0.1)
            for kas, request in opened:
                assert request.client.closed == [None], (
                    f"agent {id_} is not reached from kas {kas.number}: "
                    f"{request.client.closed}"
                )

    def teardown(self) -> None:
        try:
            if self.world.kas:
                self.calm()
        finally:
            self.guard.end()


#: Other examples each time, so many of them, and what fails made small: for hours at
#: a desk.
_EXAMPLES = int(os.environ.get("TXKAS_MODEL_EXAMPLES", "0"))

Misfortunes.TestCase.settings = settings(
    derandomize=not _EXAMPLES,
    deadline=None,
    max_examples=_EXAMPLES or 80,
    stateful_step_count=40,
    database=None,
    phases=[Phase.generate, Phase.shrink] if _EXAMPLES else [Phase.generate],
    suppress_health_check=list(HealthCheck),
)
TestMisfortunes = Misfortunes.TestCase
