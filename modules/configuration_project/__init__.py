"""
Tells GitLab for which agents a project has configuration files.

server.py          the half in kas; agentk has no half rpc.proto          the service
that GitLab calls, with GitLab's names and numbers gitaly_info.proto  its message with
the project's place in Gitaly
"""
