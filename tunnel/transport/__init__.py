"""
Bytes to and from the network, before anything is known of sessions and streams.

    address.py      the addresses of kas that agentk dials, and what each needs
    negotiation.py  from a new connection to a protocol that may use it
    layer.py        what stays below that protocol, and translates
    tls.py          contexts, reloading, pins, and why a handshake failed
    tlsio.py        TLS over any transport
    websocket.py    the same bytes inside a WebSocket
    first_bytes.py  one port for the tunnel with and without WebSocket
    proxy.py        out through an HTTP proxy: which one, and how

    eager.py        try the socket at once, before waiting for the reactor
    sockets.py      the socket under a connection: options, buffers, address as text
"""
