"""
The modules of one program: discovery, creation, start and restart.

modules.py      configures, creates and starts modules, and restarts failed ones
scope.py        the registrations of one module, until it ends api.py          the APIs
of both halves, composed by subject calls.py        calls and streams events.py
events within one program capabilities.py capabilities that modules offer to each other
sections.py     the agent's configuration from Git, for agent halves gitlab_access.py
requests of modules in agentk to GitLab, through kas stores.py       stores of server
halves: their limits and checks, for all backends pages.py        HTTP resources of
server halves, by prefix
"""
