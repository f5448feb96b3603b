"""
Several processes that are one kas to operators, agents and clients.

    supervisor.py  opens the ports, starts the workers, and represents all of them
    process.py     one worker, as the supervisor sees it
    folder.py      the folder of their sockets
    sharing.py     checks whether workers can share the configured listeners
    worker.py      a worker's settings from the supervisor, and their effects
    parent.py      its connection to the supervisor
    supervised.py  the same as a part of kas
    limits.py      limits that apply to all workers together
    summary.py     the metrics and states of all, as one
"""
