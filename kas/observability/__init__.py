"""
Health, metrics and status of one kas.

    site.py         /liveness, /readiness and /metrics
    metrics.py      what is counted of the fleet
    overview.py     every agent, for kasctl
"""
