"""
The wire on Twisted: a `tunnel.wire.session.Session` over the bytes of a transport.

    protocol.py     TunnelProtocol: a transport and its session; its owner
    roles.py        roles that a peer announces
    factory.py      TunnelFactory: creates the tunnels of a listener
    keepalive.py    Liveness: PINGs, and the detection of dead connections; one sweep
                    checks all connections

    stream.py       StreamTransport: one stream as transport, consumer and producer
    resume.py       streams that survive the connection that carries them

This package decides neither who may connect nor where a call goes.
"""
