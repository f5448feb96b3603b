"""
Connections below sessions and streams: negotiation, TLS, WebSocket, proxies, sockets.

    address.py      addresses of kas that agentk dials, and their endpoints
    negotiation.py  from a new connection to the protocol that uses it
    layer.py        common base of TLS and WebSocket, below that protocol
    tls.py          contexts of servers and clients, reloading, pins, errors
    tlsio.py        TLS over any transport
    websocket.py    the same bytes inside a WebSocket
    websocket_core.py
                    rules for every WebSocket, of the tunnel and of modules
    first_bytes.py  one port for the tunnel with and without WebSocket
    proxy.py        connections through an HTTP proxy, and its selection

    eager.py        writes that try the socket before they wait for the reactor
    sockets.py      the socket of a connection: options, buffers, address as text
"""
