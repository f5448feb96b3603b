"""
kas' configuration file: its schema, and the checks of its content.

    schema.py       all sections and their defaults
    gitlab.py       the section ``gitlab``
    gitaly.py       the section ``gitaly``
    oidc.py         the section ``oidc``
    redis.py        the section ``redis``
    workers.py      the number of processes that share the work
    checks.py       checks that several sections need
    loading.py      loading of a file together with the modules' sections
    own_address.py  the address of this kas for other kas
"""
