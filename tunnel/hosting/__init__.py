"""
The host of a program's modules, which creates, starts and restarts them.

    modules.py      creates and starts configured modules, and restarts failed ones
    scope.py        registrations of one module, until it ends
    api.py          the APIs of both halves, composed by subject
    calls.py        calls and streams
    events.py       events within one program
    capabilities.py objects that modules offer to each other
    sections.py     the agent's configuration from Git, for agent halves
    gitlab_access.py  requests of modules in agentk to GitLab, through kas
    stores.py       stores of server halves: limits and checks for every backend
    pages.py        HTTP resources of server halves, by prefix
    web_sockets.py  WebSockets of server halves: requests, and open connections
"""
