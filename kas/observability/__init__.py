"""
Health, metrics and status of one kas.

    site.py             /liveness, /readiness and /metrics
    audit.py            who asked what of which cluster
    fleet_metrics.py    what is counted of the fleet
    overview.py         every agent, for kasctl
"""
