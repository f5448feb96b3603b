"""
The feature modules that come with kas and agentk, made as third parties make theirs.

    agent_tracker/      who is connected, for GitLab
    kubernetes_api/     the Kubernetes API of a cluster, for kubectl
"""
