"""
What an agent is configured with, from ``.gitlab/agents/<name>/config.yaml`` in Git.

    schema.py       what may stand in that file
    config.py       what kas' own file says: which repository, and how often to look
    follow.py       one repository, and the agents whose configuration is in it
    document.py     one version of one file, read; and what is wrong with it
    server.py       the half in kas: finds the repository, answers agentk
    agent.py        the half in agentk: hands each section to its module
    rpc.proto       what agentk asks, with GitLab's names and numbers
    agentcfg.proto  what it is told, likewise

    Git -> follow.py -> document.py -> server.py ==tunnel==> agent.py -> other modules
"""
