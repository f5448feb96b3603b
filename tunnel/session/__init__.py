"""
The wire on Twisted: a `tunnel.wire.session.Session` over the bytes of a transport.

protocol.py     TunnelProtocol: connects a transport, its session and its owner roles.py
the role that a peer announces factory.py      TunnelFactory: creates the tunnels of a
listener keepalive.py    Liveness: sends PINGs and detects dead connections; one sweep
for all of them

stream.py       StreamTransport: one stream as transport, consumer and producer
resume.py       streams that survive the loss of their connection

This package does not decide who may connect or where a call goes.
"""
