"""
Helpers that know nothing of tunnels.

    backoff.py      pauses between attempts
    until.py        wait for a condition
    timers.py       delayed calls: cancelled, made sooner, and with names
    counts.py       counts by key, in which only what is there takes room
    poller.py       the sockets that carry requests, polled together
    flusher.py      one flush per reactor turn
    peer_slots.py   slots for each peer, so that none makes the others wait
    token_bucket.py how often something may happen
    recent.py       a table that forgets what is oldest in it
    for_each.py     call a function for each item; log exceptions and continue
    texts.py        texts of a peer, made safe
    packing.py      bytes deflated, and inflated with a limit
    traces.py       ids of traces, made and read (W3C traceparent)
    failure_log.py  a line for each error that a client sees, with the id of its trace
    yaml_fault.py   where and why a text is no YAML, and what to do
    expansion.py    limits of YAML values, counted with aliases expanded
    urls.py         URLs to which secrets may be sent
    files.py        files: whether they changed, replaced, secret, errors in words
"""
