"""
Rows of clusters, wherever they are: each kas stores the rows that agents send to it.

    row_source.py    interface of a place with rows
    own_rows.py      the store of this kas
    row_messages.py  rows and queries as messages
    peer_rows.py     the store of another kas, and what this kas answers to others
    fleet_rows.py    the stores of all kas as one
    peer_changes.py  changes in the stores of other kas
"""
