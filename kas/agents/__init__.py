"""
The agents that are connected to this kas.

    acceptor.py     accepts them: greeting, credential, timing
    part.py         the listener for agents, as a part of kas
    registry.py     the agents that are connected now, and for each instance the
                    newest connection (`kas.directory` decides between kas)
    stream_rate.py  limit on how often an agent may open streams
    waiters.py      requests that wait for an agent
    conflicts.py    agents that claim to be the same pod
    reports.py      reports of agents about their clusters
    last_seen.py    times when disconnected agents were last connected
"""
