"""
Plans: the objects to create, change and delete.

    resolve.py    the objects of a source with the names that they have in the cluster
    order.py      the order in which objects must exist
    plan.py       the plan of a commit, with the deletes that are held
    recreate.py   objects that can change only by being created again
    conflicts.py  the managers of fields that agentk may not take
"""
