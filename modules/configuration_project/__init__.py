"""
Service for GitLab that lists the agents with configuration files in a project.

    server.py          kas' half; agentk needs none
    rpc.proto          the service that GitLab calls, with GitLab's names and numbers
    gitaly_info.proto  message with the address of the project's repository in Gitaly
"""
