"""
The Kubernetes API of a cluster behind its agent, for kubectl and everything like it.

    client --HTTP--> server.py (kas) --stream--> agent.py (agentk) --HTTP--> cluster

    config.py          the sections of kas and of agentk
    server.py          the server half: admits requests (shares, read-only), joins each
                       with the stream to its agent, ends those of a credential that
                       was revoked; audit
    frontdoor.py       reads agent, credential and target from the head, refuses or
                       replaces the client's Impersonate-*, and writes the fields that
                       travel on
    forwarded.py       addresses of clients behind trusted proxies
    shares.py          what each credential may have of kas and of an agent beside
                       others: limits, weights, turns
    browsers.py        sessions of GitLab, and pages of other origins (CORS)
    websocket_tokens.py
                       credentials of browsers for WebSockets, sealed
    fields.py          header fields that both halves write, and what else they agree on
    statuses.py        errors as a Kubernetes Status: JSON, YAML, protobuf
    agent.py           the agent half
    writes.py          which credential changed what, for modules of agentk
    spans.py           spans of requests, for OpenTelemetry
    watch_boundary.py  where one event of a watch ends
    watch_api.py       GitLab's aggregated watches
    heartbeats.py      PINGs inside an upgraded connection, and who answers them
    metrics.py         what both count
    reviews.py         ``kubectl auth can-i`` of users who are read-only

One request is one raw stream.  Its OPEN carries the request's header block, its DATA
the body, FIN ends the body, and a header block before FIN holds trailers.  Back come
any number of 1xx blocks, the answer's block, DATA, perhaps trailers, FIN.  Each block
says by itself how long its body is.  Behind a 101 both directions are just bytes.
"""
