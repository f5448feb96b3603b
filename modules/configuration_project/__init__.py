"""
Tells GitLab which agents a project has configuration files for.

    server.py          the half in kas; there is none in agentk
    rpc.proto          what GitLab calls, with GitLab's names and numbers
    gitaly_info.proto  where the project is kept, likewise
"""
