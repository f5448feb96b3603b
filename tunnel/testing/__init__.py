"""
Both ends of a tunnel in memory, with back-pressure, for tests of modules.

    memory.py   `Pipe`: a connection of two transports that hold a bounded number of
                bytes and pause a writer of more
    ends.py     `connected` joins two greeted tunnels by one
    agents.py, users.py, audit.py, gitlab.py, network.py, leadership.py, calls.py
                what each half of a module gets, by subject as in `tunnel.api`
    cluster.py  `FakeCluster` answers as the Kubernetes API what a test says
    objects.py  `FakeObjects`: what is in that cluster, created, applied and watched
    store.py    `FakeStore` keeps what modules store
    repositories.py  `FakeRepository`: Git as a test has it, commit by commit
    web.py      requests of modules' pages
    spans.py    `FakeTracer` keeps the spans of modules
    pair.py     `ModulePair` runs both halves of a module against each other

For example::

    clock = Clock()
    pair = ModulePair(clock, cluster=FakeCluster(clock))
    agent = pair.agent_half(GreeterAgent)
    server = pair.server_half(GreeterServer)
    pair.start()
    answer = pair.run(server.greet("agent-1", "world"))

Nothing here opens a socket or waits for real time.
"""

from tunnel.testing.cluster import FakeCluster, FakeRequest
from tunnel.testing.ends import RecordingReceiver, connected
from tunnel.testing.memory import MemoryTransport, Pipe
from tunnel.testing.objects import FakeObjects
from tunnel.testing.pair import ModulePair
from tunnel.testing.repositories import FakeRepositories, FakeRepository
from tunnel.testing.spans import FakeSpan, FakeTracer
from tunnel.testing.store import FakeStore

__all__ = [
    "FakeCluster",
    "FakeObjects",
    "FakeRepositories",
    "FakeRepository",
    "FakeRequest",
    "FakeSpan",
    "FakeStore",
    "FakeTracer",
    "MemoryTransport",
    "ModulePair",
    "Pipe",
    "RecordingReceiver",
    "connected",
]
