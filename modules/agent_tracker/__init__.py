"""
Lists the connected agents for GitLab and other clients of the external API.

    rpc.proto     the service that GitLab calls, with GitLab's names and numbers
    entity.proto  message of that service with the data of an agent
    list.proto    txkas' own service that lists all agents at once
    server.py     kas' half; agentk sends all data in its greeting
"""
