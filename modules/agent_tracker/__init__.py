"""
Lists the connected agents for GitLab and other clients of the external API.

    rpc.proto     the service that GitLab calls, with GitLab's names and numbers
    entity.proto  its message with the data of an agent
    list.proto    a service of our own that lists all agents at once
    server.py     the half in kas; agentk sends all data in its greeting
"""
