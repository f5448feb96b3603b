"""
Faults, injected into real processes: what breaks, and what nobody may notice.

    stand.py        several kas around one Redis, each a process
    stage.py        a stand with the real API server, balancers, and ways to ask
    redis_stand.py  a stand with light agents, for what only concerns Redis ...
    redis_experiments.py  ... and what must hold on it
    path.py         a TCP path that delays, stalls, cuts, loses, throttles and balances
    clients.py      requests, POSTs and watches that go on through an experiment
    figures.py      figures that several experiments have
    followers.py    kubectl that follows or executes, and what it missed
    leading_module.py  a module that writes down that its agentk leads
    page.py         what docs/faults.rst says that goes wrong elsewhere, and its tests
    record.py       the figures: a table, and ``build/faults.json``

Loads and light agents are those of tools/load, each a process.
"""
