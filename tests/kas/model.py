"""A world for the model check: processes that die, and links that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock

from kas.directory.records import KasRecord
from tests.kas.many import Agentk, Kas
from tests.kas.model_store import ModelHub, ModelStore
from tunnel.api import IStream, IStreamReceiver
from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.testing import Pipe, RecordingReceiver

#: Turns of the world after which it has to be at rest.
MAX_TURNS = 20_000


class ProcessClock:
    """The time of one process; when that dies, none of its timers fires again."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.dead = False

    def seconds(self) -> float:
        return self.clock.seconds()

    def callLater(self, delay: float, call: Any, *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            if not self.dead:
                call(*args, **kwargs)

        return self.clock.callLater(delay, run)


@attrs.define(eq=False)
class Link:
    """One connection, between two processes."""

    url: str
    pipe: Pipe
    near: Process
    far: Process


class Process:
    """What `tests.kas.many` takes for its world, seen by one process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = ProcessClock(world.clock)
        self.network = self
        self.kas = world.kas
        self.listeners = world.listeners

    def store(self, me: KasRecord) -> ModelStore:
        return ModelStore(self, me)

    def settle(self) -> None:
        """Nothing is delivered in between."""

    def door(self, url: str) -> _Door:
        return _Door(self, url)

    def die(self) -> None:
        """As by SIGKILL: what it had not sent is lost, and nobody says goodbye."""
        self.clock.dead = True
        for link in self.world.links:
            if self in (link.near, link.far):
                for transport in link.pipe.transports:
                    transport.abortConnection()
        self.world.settle()


@attrs.define(eq=False)
class _Door:
    process: Process
    url: str

    def connect(self, factory: Any) -> Deferred[Any]:
        world = self.process.world
        if self.process.clock.dead:
            return Deferred()
        if (self.process, self.url) in world.blocked:
            return Deferred()
        listener = world.listeners.get(self.url)
        if listener is None:
            return fail(ConnectionRefusedError())
        owner = next(
            kas for kas in world.kas if self.url in (kas.me.url, kas.agents_url)
        )
        ours, theirs = factory.buildProtocol(None), listener.buildProtocol(None)
        pipe = Pipe(world.clock, ours, theirs)
        world.links.append(Link(self.url, pipe, self.process, owner.many))
        return succeed(ours)


class Execution:
    """One request as an agent got it."""

    def __init__(self, stream: IStream, request_id: bytes) -> None:
        self.stream = stream
        self.request_id = request_id
        self.received = RecordingReceiver()
        self.wrote = bytearray()
        self.head = False
        self.finished = False

    @property
    def running(self) -> bool:
        return not self.received.closed and not self.finished

    def write(self, size: int) -> None:
        """Bytes that say where they belong."""
        if not self.head:
            self.head = True
            self.stream.send_headers(b"head")
        at = len(self.wrote)
        data = bytes((at + one) % 251 for one in range(size))
        self.wrote += data
        self.stream.write(data)

    def finish(self) -> None:
        self.write(3)
        self.finished = True
        self.stream.finish()


class ModelAgent(Agentk):
    """One run of agentk, which goes where a load balancer sends it."""

    def __init__(self, world: World, at: Kas, id_: str, instance: bytes) -> None:
        self.world = world
        self.id = id_
        self.process = Process(world)
        self.dead = False
        self.executions: list[Execution] = []
        self._preferred = at
        super().__init__(self.process, at, id_, instance)

    @property
    def at(self) -> Kas:
        """Whom it prefers, or another that takes agents."""
        if self._preferred.agents_url in self.world.listeners:
            return self._preferred
        for kas in self.world.kas:
            if kas.agents_url in self.world.listeners:
                return kas
        return self._preferred

    @at.setter
    def at(self, kas: Kas) -> None:
        self._preferred = kas

    def _accept(self, stream: IStream, open_: pb.Open) -> IStreamReceiver:
        execution = Execution(stream, bytes(open_.metadata))
        self.executions.append(execution)
        self.world.executed(execution)
        return execution.received

    def lose(self, silently: bool) -> None:
        """Its connections are cut, or carry nothing any more."""
        for link in self.world.links:
            if link.near is not self.process:
                continue
            if silently:
                link.pipe.cut = True
            else:
                for transport in link.pipe.transports:
                    transport.loseConnection()
        if silently and self.dialer.tunnel is not None:
            # The new network address: it knows that the old path is dead.
            self.dialer.tunnel.abort(ErrorCode.DEAD_PEER, "the network changed")
        self.world.settle()


class World:
    """Everything that there is."""

    def __init__(self, executed: Callable[[Execution], None]) -> None:
        self.clock = Clock()
        self.executed = executed
        self.hub = ModelHub(self.clock)
        self.kas: list[Kas] = []
        self.listeners: dict[str, Any] = {}
        self.links: list[Link] = []
        #: Who cannot connect where.
        self.blocked: set[tuple[Process, str]] = set()
        self.agents: list[ModelAgent] = []

    def start_kas(self, number: int, run: int) -> Kas:
        """A new process of kas, at the address of this number."""
        kas = Kas(Process(self), number, run)
        self.kas.append(kas)
        self.settle()
        return kas

    def kill_kas(self, kas: Kas) -> None:
        """As by SIGKILL."""
        self.kas.remove(kas)
        self.listeners.pop(kas.me.url, None)
        self.listeners.pop(kas.agents_url, None)
        kas.store.leave()
        kas.many.die()

    def settle(self) -> None:
        """Until nothing moves at this moment."""
        for _ in range(MAX_TURNS):
            moved = False
            for link in tuple(self.links):
                while link.pipe.step():
                    moved = True
            if not self.hub.holding and self.hub.deliver():
                moved = True
            calls = self.clock.calls
            if calls and calls[0].getTime() <= self.clock.seconds():
                self.clock.advance(0)
                moved = True
            if not moved:
                break
        else:
            raise AssertionError("the world does not come to rest")
        self.links = [
            link
            for link in self.links
            if not all(one.disconnected for one in link.pipe.transports)
        ]

    def later(self, seconds: float, step: float = 0.5) -> None:
        """Time passes."""
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            self.settle()
            seconds -= step
