"""
agentk's half of GitOps; an agentk runs it while it leads.

    module.py   all projects of this agent
    project/    one project: its commits, passes and orders
    drift/      changes by other clients, and their authors
    apply/      executes a plan
    plan/       the objects to create, change and delete
    inventory/  the objects that exist because of a source, and claims to them
    source/     the files of a commit, and the objects that they describe
    objects/    objects of Kubernetes: texts, differences, prune guards

Each package imports only packages below it; ``make layers`` checks that.
"""
