"""
An agent that opens streams for its configuration and then reads nothing.

``python -m tests.integration.greedy_agent CA PORT TOKEN_FILE STREAMS``
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint

from agentk.dialer import Dialer
from modules.agent_configuration import rpc_pb2
from tunnel.api import TunnelConnected
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Keepalive
from tunnel.transport.tls import client_context
from tunnel.transport.tlsio import TLSClientEndpoint
from tunnel.util.flusher import Flusher

reactor: Any = _reactor
SERVICE = rpc_pb2.DESCRIPTOR.services_by_name["AgentConfiguration"]


def main(authority: str, port: str, token_file: str, streams: str) -> None:
    """Connect, read one configuration, and then only open streams."""
    context = client_context(authority, system_pool=False)
    credential = Path(token_file).read_bytes().strip()
    instance = os.urandom(16)
    runtime = Runtime(
        reactor=reactor,
        random=random.random,
        flusher=Flusher(reactor),
        keepalive=Keepalive(reactor),
    )
    dialer = Dialer(
        endpoint=lambda: TLSClientEndpoint(
            TCP4ClientEndpoint(reactor, "127.0.0.1", int(port)),
            lambda: context,
            "localhost",
            reactor,
        ),
        hello=lambda: pb.Hello(credential=credential, instance_id=instance),
        dispatcher=Dispatcher(reactor),
        runtime=runtime,
    )
    client = ServiceClient(SERVICE, dialer.open_stream, reactor)
    request = rpc_pb2.ConfigurationRequest()

    async def attack() -> None:
        # kas has read the repository after the first response, and reads it again if no
        # stream is left.
        first = client.stream("GetConfiguration", request)
        commit_id = (await anext(first)).commit_id
        assert dialer.tunnel is not None and dialer.tunnel.transport is not None
        transport: Any = dialer.tunnel.transport
        transport.pauseProducing()
        calls = []
        for _ in range(int(streams)):
            call: Any = client.open("GetConfiguration")
            calls.append(call)
            await call.send(request)
            call.finish()
        # kas logs the problem after it has handled all streams.
        refused = rpc_pb2.RefusedRequest(commit_id=commit_id, problems=["all opened"])
        await client.call("Refused", refused)

    def connected(event: TunnelConnected) -> None:
        attacking = Deferred.fromCoroutine(attack())
        attacking.addErrback(lambda failure: print(failure, flush=True))

    runtime.bus.subscribe("attack", TunnelConnected, connected)
    dialer.start()
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
