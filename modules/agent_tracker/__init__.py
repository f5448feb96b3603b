"""
Tells GitLab, and others who may call the external API, which agents are connected.

    rpc.proto     what GitLab calls, with GitLab's names and numbers
    entity.proto  what an agent says of itself, likewise
    list.proto    every agent at once, which GitLab has no call for
    server.py     the half in kas; agentk says all of it in its greeting
"""
