"""`twistd kas`, and the server halves of the modules that come with it."""

from tunnel.plugin import ServerModule
from tunnel.program.maker import ProgramMaker

kas = ProgramMaker("kas", "The server that agents in Kubernetes clusters connect to.")

agent_configuration = ServerModule(
    "agent_configuration",
    "modules.agent_configuration.server.AgentConfigurationServer",
    document="modules.agent_configuration.schema.ConfigurationFile",
    # GitLab knows the repository of each agent.
    default="gitlab",
    # Where GitLab's kas has it.
    section="agent.configuration",
)

agent_tracker = ServerModule(
    "agent_tracker",
    "modules.agent_tracker.server.AgentTrackerServer",
    # Who configures the external API wants it answered.
    default="api",
)

configuration_project = ServerModule(
    "configuration_project",
    "modules.configuration_project.server.ConfigurationProjectServer",
    # Who configures the external API wants it answered.
    default="api",
)

gitops = ServerModule(
    "gitops",
    "modules.gitops.server.module.GitopsServer",
    # Where GitLab's kas has it.
    section="agent.gitops",
)

kubernetes_api = ServerModule(
    "kubernetes_api",
    "modules.kubernetes_api.server.KubernetesApiServer",
    default=True,
    # Where GitLab's kas has it.
    section="agent.kubernetes_api",
)

notifications = ServerModule(
    "notifications",
    "modules.notifications.server.NotificationsServer",
    # Who configures the external API wants it answered; and of what one kas hears there
    # all have to hear that have agents of GitLab.
    default=("api", "gitlab"),
)
