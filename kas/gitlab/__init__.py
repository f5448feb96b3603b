"""
GitLab as the one who knows agents.

    agents.py    the authenticator: which agent a token belongs to
    cache.py     answers that are kept for a while, and one question for all who wait
    client.py    requests to GitLab's internal API
    dialling.py  the connections to GitLab
    limiter.py   no more requests in a second than configured
    metrics.py   how it goes, for Prometheus
"""
