"""
The agent half: finds Prometheus in the cluster, and asks it for users.

    module.py      the module
    questions.py   calls of kas: reviews, limits and responses
    search.py      the search for Prometheus, step by step
    services.py    Services as candidates: port, scheme and path
    rights.py      the user's right to ask a Service, as the API server decides
    service_client.py  requests to a Service: direct, or through the API server
    body_parts.py  a response, part by part
    metrics.py     metrics of questions
"""
