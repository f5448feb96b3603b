"""
Health, metrics and status of one kas.

    site.py             /liveness, /readiness and /metrics
    audit.py            who asked what of which cluster
    fleet_metrics.py    what is counted of the fleet
    redis_metrics.py    what is counted of each client of Redis
    overview.py         every agent, for kasctl
"""
