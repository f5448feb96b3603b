"""
Bytes to and from the network, before anything is known of sessions and streams.

    address.py      the addresses of kas that agentk dials, and what each needs
    negotiation.py  from a new connection to a protocol that may use it
    layer.py        what stays below that protocol, and translates
    tls.py          contexts, reloading, pins
    tlsio.py        TLS over any transport
    tls_errors.py   why no TLS connection came about
    websocket.py    the same bytes inside a WebSocket, once it is open
    websocket_server.py, websocket_client.py    how it is opened
    first_bytes.py  one port for the tunnel with and without WebSocket
    httpconnect.py  out through an HTTP proxy
    proxies.py      which proxy the environment names

    eager.py        try the socket at once, before waiting for the reactor
    sockets.py      options of the socket under a tunnel
    kernel_buffers.py   what the kernel may hold of a connection, and what it holds
"""
