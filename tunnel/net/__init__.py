"""
The wire on Twisted: bytes of a transport to a `tunnel.wire.session.Session` and back.

    keepalive.py    one sweep for all connections: pings, dead peers, questions
    protocol.py     TunnelProtocol: a transport and its session
    outlet.py       its writing half: portions, pauses, last words
    owner.py        what a tunnel tells whoever made it
    sockets.py      options of the socket under a tunnel
    leftovers.py    streams that are over here, and whose last bytes nobody takes
    stream.py       StreamTransport: one stream as transport, consumer and producer
    resumable.py    a stream that survives the connection under it
    kept.py         what it wrote, until the other end acknowledged it
    keeper.py       all of those: what they keep together
    factory.py      a tunnel for each connection to a port
    endpoints.py    one stream as client and server endpoint

    eager.py        try the socket at once, before waiting for the reactor
    negotiation.py  from a new connection to a protocol that may use it
    layer.py        what stays below that protocol, and translates
    tls.py          contexts, reloading, pins
    tlsio.py        TLS over any transport
    tls_errors.py   why no TLS connection came about
    websocket.py    the same bytes inside a WebSocket, once it is open
    websocket_server.py, websocket_client.py    how it is opened
    sniffer.py      one port for the tunnel with and without WebSocket
    httpconnect.py  out through an HTTP proxy
    proxies.py      which proxy the environment names
    addresses.py    kas addresses

Nothing here decides who may connect or where a call goes.
"""
