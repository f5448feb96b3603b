"""
Whole objects of the kinds that readers request, and responses like the API server's.

    packing.py     an object as compressed bytes
    store.py       the objects of one kind, and their recent changes
    requests.py    a request to the API server, as far as the cache answers it
    selection.py   the objects that a request selects
    forms.py       objects, lists and events in the format that a client accepts
    time_cells.py  cells whose text depends on the current time
    reads.py       responses to requests
"""
