"""
One project of an agent.

    project.py       the parts of the project, and their connections
    desired.py       the commits to apply: the newest one, or a pinned one
    passes.py        the passes, each of which applies a commit
    reconcile.py     brings the cluster to the state of one commit
    operations.py    the orders of operators
    status.py        state and problems
    explanations.py  texts for operators
    previewer.py     previews of commits
    context.py       the context that all projects of an agentk share
    stores.py        the records of a project in the cluster
    journal.py       log lines of a project
    account_reviews.py  objects that the account of the project may not write
    transfers.py     objects that move between projects or agents, in one pass
    dependencies.py  dependencies between projects
    leftovers.py     objects of inventories without a project
    preview.py       the effects of a commit, without changes
    control.py       responses to operators
    messages.py      objects and drift as messages
    reports.py       reports drift to kas and as Events of the objects
    pruned.py        reports prunes to the audit log of kas
    failing.py       reports failing projects to kas
    receivers.py     notifies objects of Flux and Argo CD of commits
    metrics.py       metrics of all projects
"""
