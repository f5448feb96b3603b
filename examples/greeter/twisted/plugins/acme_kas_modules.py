"""Declaration of the module ``greeter`` for kas and agentk."""

from tunnel.plugin import AgentModule, ServerModule

greeter_server = ServerModule(
    "greeter", "acme_kas.server.GreeterServer", requires="acme-kas[server]"
)
greeter_agent = AgentModule("greeter", "acme_kas.agent.GreeterAgent")
