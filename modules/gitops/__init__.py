"""
GitOps: agentk brings the cluster to the state that a Git repository describes.

    server/     the half in kas: finds the files of a source and sends them
    wire/       what both halves know: messages, settings, ids
    agent/      the half in agentk: reads the files and applies their objects

kas finds the files of a commit and sends them through the tunnel; agentk reads their
objects, compares them with its inventory and with the cluster, and executes a plan.

The halves meet only in `wire`; a contract of ``make layers`` checks that.
"""
