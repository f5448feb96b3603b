"""
Helpers for both programs and for modules; they are part of the stable API.

    backoff.py      pauses between attempts
    until.py        wait for a condition
    interruptible.py
                    steps of a loop that a newer event interrupts
    time_limit.py   wait for work that may survive its cancellation
    timers.py       cancel or advance delayed calls, or give names to them
    csv_text.py     rows as CSV
    counts.py       counts by key, without zero entries
    single_flight.py
                    one call at a time, whose result goes to all waiting callers
    peer_slots.py   slots for each peer, so that none delays the others
    peer_turns.py   turns for expensive work, with limits for each peer and for all
    peer_budgets.py budgets of work for each peer
    token_bucket.py rate limits
    token_buckets.py
                    a rate limit for each of many keys
    allowance.py    a limit for the number of actions in any period
    quoted.py         ends of long runs in texts, found in little memory
    recent.py       a table that forgets its oldest entry
    shared_recent.py
                    a table in which each peer has a fair share
    parallel.py     concurrent calls, at most a number of them at once
    repeated.py     a call at a fixed interval, which a failure does not end
    for_each.py     call a function for each item; log exceptions and continue
    texts.py        makes texts from a peer safe
    packing.py      compression, and decompression with a limit
    uuid7.py        ids that sort by time
    traces.py       ids of traces, created and parsed (W3C traceparent)
    log_budget.py   a limit for log lines that any stranger can cause
    failure_log.py  a line for each error that a client sees, with the id of its trace
    yaml_directives.py  limit of %TAG lines
    yaml_fault.py   position, reason and remedy of a YAML error
    expansion.py    limits of YAML values, counted with aliases expanded
    single_object.py
                    checks one Kubernetes object that a peer sent, before it is applied
    addresses.py    addresses of clients, as limits count them
    forwarded.py    proxies that are trusted to name their clients
    urls.py         URLs that may receive secrets
    secret_file.py  files with shared secrets
    held_bytes.py   limit on the bytes of responses in memory
    webhook_secret.py  secrets that authenticate webhooks of other systems
    webhook_signature.py  signatures of webhooks
    files.py        files: change detection, atomic replacement, secrets, error texts
"""
