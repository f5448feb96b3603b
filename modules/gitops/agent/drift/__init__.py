"""
Changes by other clients since a commit was applied.

    watches.py         watches on the kinds of all projects, metadata only
    drift.py           finds drift, and repairs it
    change_authors.py  authors of changes that were made through kas
    audit_log.py       authors of other changes, from the API server's audit log
"""
