"""
Directory of the agents that are connected to other kas.

Each kas knows its own connections (`kas.agents.registry`) for certain.  The directory
of a kas contains what this kas knows about the connections of other kas, from a cache,
from received events, and from a store.  The store is Redis, where every kas records
its own agents, or consists of the workers of one kas, which notify each other.

    records.py          records of a connection and of a kas
    directory.py        the directory: this kas' agents, compared with the others'
    cache.py            the cache of each agent's locations, and lookups
    known_kas.py        the other kas: which are alive, and which to query directly
    store.py            the interface of a store
    sibling_store.py    the store of workers of one kas, which query each other
    redis_store.py      the store in Redis: own lease and records, and their repair
    redis_reading.py    reader of the records of other kas
    redis_layout.py     keys, messages, and the commands that change them
"""
