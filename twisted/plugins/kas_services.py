"""`twistd kas`, and the server halves of the included modules."""

from tunnel.plugin import ServerModule
from tunnel.program.maker import ProgramMaker

kas = ProgramMaker("kas", "The server that agents in Kubernetes clusters connect to.")

action_cable = ServerModule(
    "action_cable",
    "modules.action_cable.server.ActionCableServer",
    # The module serves WebSockets on the listener for pages.
    default="web",
)

agent_configuration = ServerModule(
    "agent_configuration",
    "modules.agent_configuration.server.AgentConfigurationServer",
    document="modules.agent_configuration.schema.ConfigurationFile",
    # With GitLab, the module runs by default, because GitLab knows each agent's
    # repository.
    default="gitlab",
    # GitLab's kas has the section at this path.
    section="agent.configuration",
)

agent_tracker = ServerModule(
    "agent_tracker",
    "modules.agent_tracker.server.AgentTrackerServer",
    # The module handles calls of the external API.
    default="api",
)

cluster_audit = ServerModule(
    "cluster_audit", "modules.cluster_audit.server.module.ClusterAuditServer"
)

cluster_data = ServerModule(
    "cluster_data",
    "modules.cluster_data.server.module.ClusterDataServer",
    # The page shows the data of this module.
    default="web",
)

configuration_project = ServerModule(
    "configuration_project",
    "modules.configuration_project.server.ConfigurationProjectServer",
    # The module handles calls of the external API.
    default="api",
)

gitops = ServerModule(
    "gitops",
    "modules.gitops.server.module.GitopsServer",
    # GitLab's kas has the section at this path.
    section="agent.gitops",
)

kubernetes_api = ServerModule(
    "kubernetes_api",
    "modules.kubernetes_api.server.KubernetesApiServer",
    default=True,
    # GitLab's kas has the section at this path.
    section="agent.kubernetes_api",
)

notifications = ServerModule(
    "notifications",
    "modules.notifications.server.NotificationsServer",
    # The module handles calls of the external API, and forwards the events that one kas
    # receives there to all kas that have agents of GitLab.
    default=("api", "gitlab"),
)

web_page = ServerModule(
    "web_page",
    "modules.web_page.server.module.WebPageServer",
    # The module serves a page on the listener for pages.
    default="web",
)

webhooks = ServerModule("webhooks", "modules.webhooks.server.module.WebhooksServer")

prometheus = ServerModule(
    "prometheus", "modules.prometheus.server.module.PrometheusServer"
)
