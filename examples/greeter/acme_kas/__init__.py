"""
A module for kas and agentk that greets: small, and complete.

    rpc.proto    what the two halves say to each other
    server.py    the half in kas: an HTTP API, and what the agents report
    agent.py     the half in agentk: answers, and reports

The server half never imports the agent half, nor the other way round: each runs where
the other one's dependencies need not be installed.
"""
