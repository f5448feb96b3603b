"""
The agents that are connected to this kas.

    acceptor.py     accepts them: greeting, credential, how long one may be silent
    registry.py     those that are connected now; of two connections of one instance
                    the newer one (between several kas `kas.directory` says which)
    stream_rate.py  limit on how often an agent may open streams
    waiters.py      requests that wait for one of them
    conflicts.py    those that say that they are the same pod
    reports.py      what they tell of their clusters
    last_seen.py    when those that are gone were last here
"""
