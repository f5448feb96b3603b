"""
Configuration of agents, from ``.gitlab/agents/<name>/config.yaml`` in Git.

    schema.py       the schema of that file
    config.py       settings of kas: the repository of each agent, and the period
    follow.py       one repository, and the agents whose configuration it contains
    document.py     one version of one file, with its problems
    server.py       the half in kas: finds the repository, answers agentk
    agent.py        the half in agentk: hands each section to its module
    rpc.proto       the service that agentk calls, with GitLab's names and numbers
    agentcfg.proto  its messages

    Git -> follow.py -> document.py -> server.py ==tunnel==> agent.py -> other modules
"""
