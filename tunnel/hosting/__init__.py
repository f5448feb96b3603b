"""
The modules of one program: found, made, started, restarted.

    modules.py      configured, made, started, and made again after a failure
    scope.py        what one module registered, until it ends
    api.py          the APIs of both halves, composed by subject
    calls.py        calls and streams
    events.py       events within one program
    capabilities.py what modules offer to each other
    sections.py     the agent's configuration from Git, for agent halves
    gitlab_access.py  what modules of agentk ask GitLab, through kas
    stores.py       stores of server halves: their limits and checks, wherever kept
    pages.py        what server halves serve over HTTP, by prefix
"""
