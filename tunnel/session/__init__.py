"""
The wire on Twisted: a `tunnel.wire.session.Session` over the bytes of a transport.

    protocol.py     TunnelProtocol: a transport and its session; its owner
    roles.py        what a peer says that it is
    factory.py      TunnelFactory: makes the tunnels of a listener
    keepalive.py    Liveness: PINGs, and when a silent connection is dead; one sweep
                    for all of them

    stream.py       StreamTransport: one stream as transport, consumer and producer
    resume.py       streams that survive the connection under them

Nothing here decides who may connect or where a call goes.
"""
