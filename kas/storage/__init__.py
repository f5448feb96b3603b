"""
Backends of the stores of modules.

`tunnel.hosting` checks the modules' requests (keys, lengths, limits).

    backend.py          the backend that the configuration selects
    file_backend.py     a file of the state directory, for a single kas
    redis_backend.py    Redis, for several kas
    sealed_backend.py   seals on the values in Redis

Importing ``redis_backend`` installs a reactor, because importing txredisapi does.
"""
