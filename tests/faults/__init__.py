"""
Faults, injected into real processes: what breaks, and what nobody may notice.

    stand.py        several kas around one Redis, each a process
    stage.py        a stand with the real API server, balancers, and ways to ask
    redis_stand.py  a stand with light agents, for what only concerns Redis
    path.py         a TCP path that delays, stalls, cuts, loses, throttles and balances
    agents.py       many agents in one process, which follow kas
    load.py         requests, POSTs and watches in a process of their own ...
    clients.py      ... and how an experiment starts them and reads what they saw
    redis_clients.py  light agents and light clients, each a process
    record.py       the figures: a table, and ``build/faults.json``
"""
