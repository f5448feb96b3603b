"""
Webhooks in clusters that nobody reaches from outside: a push in Git becomes a POST to a
Service.

    wire/     messages of both halves, and the section of the agent's configuration
    server/   kas' half: notices pushes, and keeps the newest delivery of each ref
    agent/    agentk's half: posts deliveries, signed, to Services

    Git -> server/ ==tunnel==> agent/ -> Service
              |
        store of kas: state, attempts, next attempt
"""
