"""
The Kubernetes API of a cluster behind its agent, for kubectl and similar clients.

    client --HTTP--> server.py (kas) --stream--> agent.py (agentk) --HTTP--> cluster

    config.py          the sections of kas and of agentk
    server.py          the server half: admits requests (shares, read-only), connects
                       each with the stream to its agent, ends the requests of a
                       revoked credential
    audits.py          events of the audit log about requests
    frontdoor.py       reads agent, credential and target from the head, refuses or
                       replaces the client's Impersonate-*, and writes the forwarded
                       fields
    forwarded.py       addresses of clients behind trusted proxies
    shares.py          each credential's share of kas and of an agent: limits, weights,
                       queues
    agent_paths.py     paths of other modules at the same listener
    browsers.py        sessions of GitLab, and pages of other origins (CORS)
    websocket_tokens.py
                       encrypted credentials of browsers for WebSockets
    fields.py          header fields and constants that both halves use
    statuses.py        errors as a Kubernetes Status: JSON, YAML, protobuf
    agent.py           the agent half
    writes.py          reports of changes and their credentials, for modules of agentk
    spans.py           spans of requests, for OpenTelemetry
    watch_boundary.py  finds the end of an event of a watch
    watch_api.py       GitLab's aggregated watches
    cached_watch.py    a watch of it from the cache of an agent
    watch_turns.py     order in which paused watches resume
    heartbeats.py      PINGs inside an upgraded connection, and their PONGs
    metrics.py         metrics of both halves
    reviews.py         ``kubectl auth can-i`` of read-only users

One request is one raw stream.  Its OPEN carries the request's header block, its DATA
the body, FIN ends the body, and a header block before FIN contains trailers.  The
response consists of any number of 1xx blocks, the response's block, DATA, perhaps
trailers, and FIN.  Each block defines the length of its own body.  After a 101, both
directions are plain bytes.
"""
