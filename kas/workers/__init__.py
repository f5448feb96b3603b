"""
Several processes that are one kas to operators, agents and clients.

    supervisor.py  opens the ports, starts the workers, and speaks for all of them
    process.py     one worker, as the supervisor sees it
    folder.py      the folder of their sockets
    sharing.py     whether they can listen where the configuration says
    worker.py      what a worker is told when it is started, and what follows from it
    parent.py      its line to the supervisor
    limits.py      what all workers count together
    summary.py     the metrics and states of all, as those of one
"""
