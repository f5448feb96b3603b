"""
The half of GitOps in agentk; an agentk runs it while it leads.

    module.py   all projects of this agent
    project/    one project: when it works on which commit, and its orders
    drift/      changes by other clients, and who made them
    apply/      executes a plan
    plan/       what to create, change and delete
    inventory/  which objects exist because of which source, and claims on them
    source/     the files of a commit, and the objects that they describe
    objects/    objects of Kubernetes: texts, differences, health, prune guards

Each package imports only packages below it; ``make layers`` checks that.
"""
