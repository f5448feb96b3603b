"""
The server: accepts agents, and carries requests to them.

    tap.py          `twistd kas`: options, and the service that they make
    config.py       what the configuration file may say
    service.py      the service tree; the only place that wires the parts together
    agents.py       accepts agents: greeting, credential, replacement
    registry.py     the agents that are connected here
    routing.py      from "a stream to agent 7" to a stream
    modules.py      what a server half of a module is lent
    observability.py  health, metrics and status over HTTP
    identity.py     who may connect and ask: the identity file
    state.py pki.py ctl/   the state directory, its certificates, and `kasctl`

    agentk ==TLS==> agents.py -> registry.py <- routing.py <- modules.py <- modules
"""
