"""
Both ends of a tunnel in memory, with back-pressure, for tests of modules.

    memory.py   `Pipe`: a connection of two transports that hold a limited number of
                bytes and pause the writer beyond that
    ends.py     `connected`: two tunnels joined by a pipe, after the greeting
    sign_in.py  `FakeSignInProvider`: users who sign in with a browser
    agents.py, users.py, audit.py, gitlab.py, network.py, peers.py, leadership.py,
    calls.py
                fakes of the attributes of a module's API, by subject as in `tunnel.api`
    cluster.py  `FakeCluster`: a Kubernetes API whose responses a test sets
    services.py `FakeService`: a server behind a Service of that cluster
    objects.py  `FakeObjects`: the objects of that cluster; requests create, apply and
                watch them
    store.py    `FakeStore`: the values that modules store
    repositories.py  `FakeRepository`: a Git repository with commits from the test
    cluster_views.py  `view_rows`: the rows of an object in a view
    cluster_rows.py  `FakeClusterRows`: rows of live data for a module of kas
    cached_watches.py  `FakeCachedWatches`: watches from the cache of an agent
    agent_paths.py  `FakeAgentPaths`: requests for the paths of modules at the listener
                for kubectl
    cable.py    `FakeCableSubscription`: a subscription to a channel of ActionCable
    web.py      requests for the pages of modules, and `FakeWebSocket`
    spans.py    `FakeTracer`: the spans of modules
    pair.py     `ModulePair`: both halves of a module, connected to each other

For example::

    clock = Clock()
    pair = ModulePair(clock, cluster=FakeCluster(clock))
    agent = pair.agent_half(GreeterAgent)
    server = pair.server_half(GreeterServer)
    pair.start()
    answer = pair.run(server.greet("agent-1", "world"))

Nothing here opens a socket or waits for real time.
"""

from tunnel.testing.agent_paths import FakeAgentPaths, FakePathResponse
from tunnel.testing.cable import FakeCableCaller, FakeCableSubscription
from tunnel.testing.cached_watches import FakeCachedWatch, FakeCachedWatches
from tunnel.testing.cluster import FakeCluster, FakeRequest
from tunnel.testing.cluster_rows import FakeClusterRows
from tunnel.testing.cluster_views import view_rows
from tunnel.testing.ends import RecordingReceiver, connected
from tunnel.testing.memory import MemoryTransport, Pipe
from tunnel.testing.objects import FakeObjects
from tunnel.testing.pair import ModulePair
from tunnel.testing.repositories import FakeRepositories, FakeRepository
from tunnel.testing.services import FakeService
from tunnel.testing.sign_in import FakeSignInProvider
from tunnel.testing.spans import FakeSpan, FakeTracer
from tunnel.testing.store import FakeStore
from tunnel.testing.web import FakeWebSocket

__all__ = [
    "FakeAgentPaths",
    "FakeCableCaller",
    "FakeCableSubscription",
    "FakeCachedWatch",
    "FakeCachedWatches",
    "FakeCluster",
    "FakeClusterRows",
    "FakeObjects",
    "FakePathResponse",
    "FakeRepositories",
    "FakeRepository",
    "FakeRequest",
    "FakeService",
    "FakeSignInProvider",
    "FakeSpan",
    "FakeStore",
    "FakeTracer",
    "FakeWebSocket",
    "MemoryTransport",
    "ModulePair",
    "Pipe",
    "RecordingReceiver",
    "connected",
    "view_rows",
]
