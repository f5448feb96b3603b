"""
kas' half of webhooks.

    module.py      the module: streams to agentk, and changes by other kas
    deliveries.py  the deliveries of one agent
    schedule.py    when a failed delivery is tried again
    stored.py      the state of deliveries in the store
    control_server.py  requests of kasctl
    config.py      section of kas' configuration file
    metrics.py     metrics of deliveries
"""
