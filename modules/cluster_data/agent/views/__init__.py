"""
Views: rows derived from objects, one object at a time.

    workloads.py     controllers of pods
    nodes.py         nodes
    problems.py      objects that are not as specified
    events.py        warnings
    applications.py  objects that declare an application
    services.py      Services, with their addresses
"""
