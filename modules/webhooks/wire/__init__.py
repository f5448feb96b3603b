"""
Data that both halves of the module ``webhooks`` share.

    settings.py     section ``webhooks`` of the agent's configuration
    webhooks.proto  deliveries to agentk, and requests of operators
"""
