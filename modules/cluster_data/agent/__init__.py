"""
The agent half: one watch for each kind of objects, and rows in place of objects.

    module.py     the module, which runs while this agentk leads
    cluster_uid.py  the uid of the cluster
    cache.py      the watches, and the rows of their objects
    shapes.py     the fields of objects that the cache reads
    pod_state.py  the state of a pod in one word
    table.py      the rows of one view, with the order of their changes
    views/        what each view shows of an object
    view_registry.py  all views, also those of other modules
    budget.py     number of bytes that the cache may use
    objects/      whole objects for readers
    publisher.py  publication of the tables to kas
    usage.py      CPU and memory of nodes and pods
    reviews.py    access reviews for kas
    rights_watch.py  watches of roles and bindings
    metrics.py    metrics of the cache
"""
