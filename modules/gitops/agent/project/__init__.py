"""
One project of an agent.

    project.py       the parts of the project, and how they work together
    desired.py       the commits to apply: the newest one, or a pinned one
    passes.py        when the project applies which commit
    reconcile.py     brings the cluster to the state of one commit
    operations.py    the orders of operators
    status.py        state and problems
    explanations.py  texts for operators
    previewer.py     previews of commits
    context.py       what all projects of an agentk share
    stores.py        what agentk keeps of a project in the cluster
    journal.py       log lines of a project
    transfers.py     objects that move between projects or agents, in one pass
    dependencies.py  which projects wait for which others
    leftovers.py     objects of inventories whose project is gone
    preview.py       the effects of a commit; changes nothing
    control.py       answers operators
    messages.py      objects and drift as messages
    reports.py       reports drift to kas and as events of the objects
    pruned.py        reports prunes to the audit log of kas
    failing.py       reports failing projects to kas
    receivers.py     tells objects of Flux and Argo CD about commits
    metrics.py       metrics of all projects
"""
