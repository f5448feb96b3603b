"""
Faults, injected into real processes: what breaks, and what nobody may notice.

    stand.py        several kas around one Redis, each a process
    stage.py        a stand with the real API server, balancers, and ways to ask
    redis_stand.py  a stand with light agents, for what only concerns Redis ...
    redis_experiments.py  ... and what must hold on it
    path.py         a TCP path that delays, stalls, cuts, loses, throttles and balances
    agents.py       many agents in one process, which follow kas
    load.py         requests, POSTs and watches in a process of their own ...
    connection.py   ... each on one of these ...
    clients.py      ... and how an experiment starts them and reads what they saw
    followers.py    kubectl that follows or executes, and what it missed
    light_agents.py light_load.py   light agents and light clients, each a process ...
    redis_clients.py  ... and how an experiment starts and asks them
    record.py       the figures: a table, and ``build/faults.json``
"""
