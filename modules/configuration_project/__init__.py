"""
Answers GitLab's question which agents a project has configuration files for.

    server.py          the half in kas; agentk has no half
    rpc.proto          the service that GitLab calls, with GitLab's names and numbers
    gitaly_info.proto  its message with the project's place in Gitaly
"""
