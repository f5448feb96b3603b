"""
The feature modules that come with kas and agentk, made as third parties make theirs.

    agent_configuration/    what agents are configured with, from Git
    agent_tracker/          who is connected, for GitLab
    configuration_project/  which agents a project has configuration for, for GitLab
    gitops/                 what is in Git lives in the cluster
    kubernetes_api/         the Kubernetes API of a cluster, for kubectl
    notifications/          who pushed to which repository
    repositories.py         Git repositories as kas' file names them
    secret_file.py          secrets in files, which two sides know
"""

import tunnel  # noqa: F401 - decides whether compiled modules run
