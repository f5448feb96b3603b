"""
Which kas holds which agent.

The connections themselves are the truth, and each kas knows its own
(`kas.agents.registry`).  The directory is what a kas knows about those of its peers: a
cache, events that come in, and a store: Redis, in which every kas writes down its own,
or the workers of the same kas, which tell each other.

    records.py          a connection, a kas: what all of it is about
    directory.py        the directory: what is ours, compared with what others have
    cache.py            what is known of each agent, and when it is looked up
    known_kas.py        the other kas: which live, and which have to be asked directly

    store.py            what is needed of a store
    sibling_store.py    that of workers of one kas, which ask each other
    redis_store.py      one in Redis: our lease, what is ours, and its repair
    redis_reading.py    what other kas wrote
    redis_layout.py     keys, messages, and the commands that change what stands there
"""
