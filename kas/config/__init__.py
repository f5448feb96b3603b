"""
kas' configuration file: what it may say, and what is wrong there.

    schema.py       its sections and their defaults
    gitlab.py       the section ``gitlab``
    gitaly.py       the section ``gitaly``
    oidc.py         the section ``oidc``
    redis.py        the section ``redis``
    workers.py      how many processes share the work
    checks.py       checks that several sections need
    loading.py      a file and the modules' sections, read and checked together
    own_address.py  the address at which other kas reach this one
"""
