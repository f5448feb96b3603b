"""
The server half: checks requests of users, and forwards them to clusters.

    module.py         the module
    parameters.py     path and parameters of a request, each in one place only
    envelope.py       errors as Prometheus writes them
    agent_path.py     ``/agents/<agent>/prometheus``: one cluster
    fleet_page.py     ``/fleet/prometheus``: the page for several clusters
    fleet.py          questions to several clusters, and their merged answer
    merging.py        parts of answers that are merged
    cluster_label.py  the label of merged answers with the name of the cluster
    decomposition.py  the form for one cluster of a query about several
    promql_tokens.py  the words of a query
    trails.py         the search for Prometheus, for operators
    metrics.py        metrics of requests
"""
