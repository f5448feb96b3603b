"""
The objects that exist because of a source.

    identity.py    ids of inventories
    inventory.py   the inventory of a source, in ConfigMaps
    own_secret.py  a Secret that only agentk writes
    orders.py      orders of operators and the history, in such a Secret
    writer.py      the agentk that wrote an inventory last
    listing.py     reads many objects with one request
    handover.py    objects that move between projects of this agent
    claims.py      objects that move between agents of the cluster
"""
