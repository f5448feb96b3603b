"""
GitLab as the one who knows agents, and the jobs and people that use them.

    access.py    requests of modules in agentk, passed on with both signatures
    agents.py    the authenticator: which agent a token belongs to
    cache.py     answers that are kept for a while, and one question for all who wait
    client.py    requests to GitLab's API
    credentials.py  what the authenticators of jobs and people have in common
    jobs.py      the authenticator of CI jobs, by their tokens, and as whom they ask
    metrics.py   how it goes, for Prometheus
    projects.py  the repositories of agents, and how GitLab is told what is in them
    reading.py   what GitLab says, checked
    refusals.py  what GitLab refused, known to all kas through Redis
    registrations.py
                 which agents registered, told to GitLab
    renewal.py   credentials that are in use are asked about again
    usage.py     how much is used, told to GitLab
    users.py     the authenticators of people, by personal access token or browser,
                 and as whom they ask

What GitLab asks of kas comes by the external API, with its tokens: `kas.api`.
"""
