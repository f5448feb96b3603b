"""
agentk's half of webhooks.

    module.py      the module: deliveries from kas while this agentk leads
    attempt.py     one attempt: the Service, the secret, the request, the result
    formats.py     bodies and header fields as GitHub, GitLab and kas send them
    secrets.py     secrets of receivers, read in the cluster
    response.py    the part of a response that matters
    metrics.py     metrics of attempts
"""
