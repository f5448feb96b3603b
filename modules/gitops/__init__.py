"""
GitOps: agentk brings the cluster to the state that a Git repository describes.

    server/     kas' half: finds the files of a source and sends them
    wire/       shared by both halves: messages, settings, ids
    agent/      agentk's half: reads the files and applies their objects

kas finds the files of a commit and sends them through the tunnel; agentk reads their
objects, compares them with its inventory and with the cluster, and executes a plan.
The halves share only `wire`; a contract of ``make layers`` checks that.
"""
