"""`twistd agentk`, and the agent halves of the included modules."""

from tunnel.plugin import AgentModule, GitSection
from tunnel.program.maker import ProgramMaker

agentk = ProgramMaker("agentk", "The agent that connects a Kubernetes cluster to kas.")

kubernetes_api_agent = AgentModule(
    "kubernetes_api", "modules.kubernetes_api.agent.KubernetesApiAgent", default=True
)

gitops_agent = AgentModule(
    "gitops",
    "modules.gitops.agent.module.GitopsAgent",
    sections=(
        GitSection(
            "gitops", "modules.gitops.wire.settings.GitopsSection", "manifests from Git"
        ),
    ),
)

agent_configuration_agent = AgentModule(
    "agent_configuration",
    "modules.agent_configuration.agent.AgentConfigurationAgent",
    default=True,
    sections=(
        GitSection(
            "scope",
            "tunnel.api.agent_scope.AgentScope",
            "the namespaces that agentk's own features work in",
        ),
    ),
)

cluster_audit_agent = AgentModule(
    "cluster_audit", "modules.cluster_audit.agent.module.ClusterAuditAgent"
)

cluster_data_agent = AgentModule(
    "cluster_data", "modules.cluster_data.agent.module.ClusterDataAgent"
)

webhooks_agent = AgentModule(
    "webhooks",
    "modules.webhooks.agent.module.WebhooksAgent",
    sections=(
        GitSection(
            "webhooks",
            "modules.webhooks.wire.settings.WebhooksSection",
            "Services that agentk notifies of pushes to Git",
        ),
    ),
)

prometheus_agent = AgentModule(
    "prometheus",
    "modules.prometheus.agent.module.PrometheusAgent",
    sections=(
        GitSection(
            "prometheus",
            "modules.prometheus.wire.settings.PrometheusSection",
            "the Prometheus of the cluster",
        ),
    ),
)
