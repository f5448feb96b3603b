"""
Lists for GitLab the agents for which a project has configuration files.

    server.py          kas' half; agentk needs none
    rpc.proto          the service that GitLab calls, with GitLab's names and numbers
    gitaly_info.proto  message with the address of the project's repository in Gitaly
"""
