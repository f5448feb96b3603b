"""
A module for kas and agentk that greets: small, and complete.

    rpc.proto    messages between the two halves
    server.py    the half in kas: an HTTP API, and reports from agents
    agent.py     the half in agentk: greetings, and reports to kas

Neither half imports the other, because each runs without the other's dependencies.
"""
