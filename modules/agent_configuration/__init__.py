"""
Configuration of agents, from ``.gitlab/agents/<name>/config.yaml`` in Git.

    schema.py       schema of that file
    config.py       settings of kas: the repository of each agent, and the period
    follow.py       reader of one repository, for the agents configured in it
    document.py     one version of one file, with its problems
    server.py       kas' half: finds the repository and answers agentk
    agent.py        agentk's half: passes each section to its module
    rpc.proto       the service that agentk calls, with GitLab's names and numbers
    agentcfg.proto  messages of that service

    Git -> follow.py -> document.py -> server.py ==tunnel==> agent.py -> other modules
"""
