"""
GitLab as the authority for agents, and for jobs and users that access them.

    module_requests.py  requests of modules in agentk, forwarded with both signatures
    agents.py    the authenticator of agents' tokens
    cache.py     cached responses, and one request for all callers that wait for it
    client.py    requests to GitLab's API
    credentials.py  common parts of the authenticators of jobs and users
    jobs.py      the authenticator of CI jobs' tokens, and their users in the cluster
    metrics.py   metrics for Prometheus
    part.py      GitLab as a part of kas
    projects.py  the repositories of agents, and the posting of their configuration
    json_object.py  checked reading of GitLab's responses
    refusals.py  GitLab's refusals, shared by all kas through Redis
    registrations.py
                 reports of registered agents to GitLab
    renewal.py   repeated checks of credentials in use
    usage.py     usage reports to GitLab
    users.py     the authenticators of users, by personal access token or browser,
                 and their users in the cluster

GitLab's own requests to kas arrive at the external API: `kas.api`.
"""
