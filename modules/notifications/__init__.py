"""
Receives notifications of pushes to repositories, and forwards them to every kas.

    server.py    kas' half; agentk needs none
    webhook.py   the page that Git servers call
    rpc.proto    the service that GitLab calls, with GitLab's names and numbers
    event.proto  messages of that service
"""
