"""
The feature modules of kas and agentk, which use the same interfaces as third-party
modules.

    action_cable/           subscriptions of browsers, for other modules' channels
    agent_configuration/    configuration of agents, from Git
    agent_tracker/          the connected agents, for GitLab
    cluster_audit/          audit logs of the clusters' API servers
    cluster_data/           live data of clusters, for queries about all of them
    configuration_project/  which agents a project has configuration for, for GitLab
    gitops/                 applies objects from Git to the cluster
    kubernetes_api/         the Kubernetes API of a cluster, for kubectl
    notifications/          notifications of pushes to repositories
    web_page/               the web page of kas
    webhooks/               posts pushes to Services in clusters
    prometheus/             PromQL for one cluster and for several
"""

import tunnel  # noqa: F401 - decides whether compiled modules run
