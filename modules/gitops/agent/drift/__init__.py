"""
Changes by other clients since a commit was applied.

    watches.py         watches on the kinds of all projects, metadata alone
    drift.py           finds drift, and repairs it
    change_authors.py  who changed an object through kas
    audit_log.py       ... and who changed it in another way
"""
