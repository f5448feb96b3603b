"""
Health, metrics and status of one kas.

    site.py             /liveness, /readiness and /metrics
    part.py             the listener for them, as a part of kas
    fleet_metrics.py    metrics of the fleet
    overview.py         every agent, for kasctl
"""
