"""
The other kas.

    fleet.py        what one kas of several has: directory, peers, private API
    part.py         membership in the fleet, as a part of kas
    tokens.py       the tokens that they greet each other with
    peers.py        sessions to the others
    gateway.py      what they may ask of this one
    balance.py      sends agents elsewhere: when this kas leaves, or has too many
"""
