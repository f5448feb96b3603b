"""
Bytes to and from the network, below sessions and streams.

address.py      addresses of kas that agentk dials, and their endpoints negotiation.py
negotiation on a new connection, before a protocol uses it layer.py        a layer that
stays below that protocol, and translates tls.py          contexts, reloading, pins, and
reasons of failed handshakes tlsio.py        TLS over any transport websocket.py    the
same bytes inside a WebSocket first_bytes.py  one port for the tunnel with and without
WebSocket proxy.py        connections through an HTTP proxy

    eager.py        try the socket at once, before waiting for the reactor
    sockets.py      the socket under a connection: options, buffers, address as text
"""
