"""
Views: rows derived from objects, one object at a time.

    view.py       what a view is, and columns that views share
    workloads.py  controllers of pods
    nodes.py      nodes
    problems.py   objects that are not as specified
    events.py     warnings
"""
