"""
Backends of the stores of modules.

`tunnel.hosting` checks the modules' requests (keys, lengths, limits).

    file_backend.py     a file of the state directory, for a single kas
    backend.py          the backend that the configuration selects
    redis_backend.py    Redis, for several

Importing the second one installs a reactor, as importing txredisapi does.
"""
