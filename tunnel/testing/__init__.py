"""
Both ends of a tunnel in memory, with back-pressure, for tests of modules.

* `memory`: a `Pipe` is a connection of two transports that hold a bounded number of
  bytes and pause whoever writes more;
* `ends`: `connected` joins two greeted tunnels by one;
* `apis`: what each half of a module is lent;
* `cluster`: `FakeCluster` answers as the Kubernetes API what a test says;
* `pair`: `ModulePair` runs both halves of a module against each other::

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
from tunnel.testing.pair import ModulePair

__all__ = [
    "FakeCluster",
    "FakeRequest",
    "MemoryTransport",
    "ModulePair",
    "Pipe",
    "RecordingReceiver",
    "connected",
]
