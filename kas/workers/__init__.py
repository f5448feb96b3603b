"""
Several processes that are one kas to operators, agents and clients.

    supervisor.py  the service of the supervisor, which represents all workers
    sockets.py     the sockets of the workers, opened by the supervisor
    part.py        the processes of the workers, as a part of the supervisor
    calls.py       requests of the supervisor to workers
    operations.py  commands and queries of kasctl, for all workers
    site.py        health, metrics and status of all workers
    process.py     one worker, as the supervisor sees it
    folder.py      the folder of the workers' sockets
    sharing.py     checks whether workers can share the configured listeners
    worker.py      a worker's settings from the supervisor, and their effects
    parent.py      a worker's connection to the supervisor
    supervised.py  the same connection as a part of kas
    service.py     the service of a worker
    limits.py      limits that apply to all workers together
    summary.py     the metrics and states of all workers, combined
"""
