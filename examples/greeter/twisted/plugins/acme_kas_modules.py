"""Tells kas and agentk that there is a module named ``greeter``."""

from tunnel.plugin import AgentModule, ServerModule

greeter_server = ServerModule(
    "greeter", "acme_kas.server.GreeterServer", requires="acme-kas[server]"
)
greeter_agent = AgentModule("greeter", "acme_kas.agent.GreeterAgent")
