"""
Where the stores of modules keep their values.

What modules may ask for (keys, lengths, limits) is checked in `tunnel.hosting`.

    file_backend.py     a file of the state directory, for a kas that is alone
    redis_backend.py    Redis, for several

Importing the second installs a reactor, as importing txredisapi does.
"""
