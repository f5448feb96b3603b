"""
kas' configuration file: its schema, and checks.

schema.py       its sections and their defaults gitlab.py       the section ``gitlab``
gitaly.py       the section ``gitaly`` oidc.py         the section ``oidc`` redis.py the
section ``redis`` workers.py      the number of processes that share the work checks.py
validators that several sections need loading.py      reads and checks a file together
with the modules' sections own_address.py  the address at which other kas reach this one
"""
