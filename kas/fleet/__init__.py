"""
The other kas.

fleet.py        connects the directory, the peers and the private API part.py membership
in the fleet, as a part of kas tokens.py       the tokens with which kas authenticate to
each other peers.py        sessions to other kas gateway.py      requests of other kas
to this one balance.py      moves agents to other kas: when this one leaves, or has too
many
"""
