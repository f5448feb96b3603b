"""
Connections between this kas and the other kas of its fleet.

    fleet.py        the parts that a kas in a fleet has: directory, peers, private API
    part.py         membership in the fleet, as a part of kas
    tokens.py       tokens for authentication between kas
    credentials.py  the secrets and CAs that verified the open sessions
    peers.py        sessions to other kas
    gateway.py      requests of other kas to this one
    balance.py      moves agents away when this kas leaves or has too many
"""
