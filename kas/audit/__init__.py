"""
The audit log: who did what, in lines that cannot be changed unnoticed.

    part.py         the log with all below, as parts of kas
    log.py          events become lines of the file
    commits.py      events that must be on disk before kas continues
    chain.py        each line has the hash of the line before; signed checkpoints
    tree.py         Merkle trees of lines
    notes.py        signatures of checkpoints
    service.py      searches in the logs of all kas
    files.py        the files, also after a rotation
    search.py       finds events
    cluster.py      joins the clusters' own audit logs with it
    exports/        sends events to other systems
    verify.py       finds changes of the lines
    fragments.py    incomplete lines, and the lines that name them
    retention.py    removes old files
    retaining.py    the same, as a part of kas
    holds.py        events that must not be removed
    key.py          the key for them, in the state directory
    last.py         the last checkpoint of each chain, in the state directory

    record() -> log -> queue -> [writer's thread] -> chain -> file
"""
