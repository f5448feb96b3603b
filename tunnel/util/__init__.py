"""
Helpers that know nothing of tunnels.

    backoff.py      pauses between attempts
    until.py        wait for a condition
    timers.py       delayed calls with names
    flusher.py      one flush per reactor turn
    for_each.py     call a function for each item; log exceptions and continue
    texts.py        texts of a peer, made safe
    file_version.py whether a file has changed
    secret_files.py whether other users can read a secret
    replacement.py  files that are replaced at once
    os_errors.py    errors of the operating system in words
"""
