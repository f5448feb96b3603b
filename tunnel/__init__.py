"""
Code that kas and agentk share, and everything that both processes must agree on.

The public parts, for authors of modules:

    api/            interfaces that modules implement, and interfaces that they use
    interfaces.py   earlier name of api/
    toolkit/        helpers for both programs and for modules
    plugin.py       modules as plugins, and their discovery
    errors.py       errors                 details.py  details of errors for programs
    bodies.py       bodies of requests to other servers, and of their responses
    config/         configuration: YAML in, frozen classes out
    http1/          HTTP/1.1 for proxies
    http2/          HTTP/2          grpc/    gRPC on HTTP/2 (client and server sides)
    testing/        both ends of a tunnel in memory

Each of the following parts uses only parts below it:

    program/        common parts of both programs: startup, logs, ports, metrics
    hosting/        modules: created, started, restarted
    kubernetes/     the Kubernetes API       rpc/      calls over streams
    session/        the wire on Twisted
    transport/      bytes to and from the network
    wire/           frames, streams, windows: no I/O, no clock
    pb/             messages of the protocol       gitaly/    messages of Gitaly
    util/           input and output of many connections at once
    compiled.py     selection of compiled modules or their sources
"""

import os
from pathlib import Path

from tunnel.compiled import choose

__version__ = "0.9.0"

# This must precede the import of every compiled module.
choose(os.environ, Path(__file__).resolve().parents[1])
