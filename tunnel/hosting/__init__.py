"""
The modules of one program: found, made, started, restarted.

    modules.py      configured, made, started, and made again after a failure
    context.py      what both programs give to every module
    events.py       topics within one program
    sections.py     the agent's configuration from Git, for agent halves
    gitlab_access.py  what modules of agentk ask GitLab, through kas
    stores.py       stores of server halves: their limits and checks, wherever kept
    pages.py        what server halves serve over HTTP, by prefix
"""
