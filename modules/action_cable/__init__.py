"""
Subscriptions of browsers, with the protocol of Rails' ActionCable, at ``/-/cable``.

Other modules serve the channels (`tunnel.api.ICable`).

    server.py        the module: requests, channels, revoked credentials
    connection.py    one connection: commands in order, snapshots, the end
    subscription.py  one subscription: messages, and fewer of them for a slow client
    hub.py           everything that connections share: channels, limits
    caller.py        the credential of a connection, and its rights
    credentials.py   where a request contains its credential
    messages.py      the messages of the protocol
    metrics.py       counters
"""
