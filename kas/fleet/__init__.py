"""
The other kas.

    fleet.py        what one kas of several has: directory, peers, private API, and the
                    tokens that they check of each other
    peers.py        sessions to the others
    gateway.py      what they may ask of this one
    balance.py      sends agents elsewhere: when this kas leaves, or has too many
"""
