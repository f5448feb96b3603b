"""
The server: accepts agents, and carries requests to them.

    tap.py          `twistd kas`: options, and the service that they make
    config*.py loading.py  what the configuration file may say, and what is wrong there
    service.py      the service tree; the only place that wires the parts together
    modules.py      what a server half of a module is lent

    agents.py       accepts agents: greeting, credential, replacement
    registry.py     the agents that are connected here
    watchers.py     who waits for one of them, or for news of one
    conflicts.py    those that say that they are the same pod
    routing.py      from "a stream to agent 7" to the hops that it may take
    routed.py       the stream itself, whichever way it goes, and the next way
    pacing.py       its producer, which goes on with that
    waiting.py      what it waits for while there is none
    resumption.py   how one that survives its path finds the next

    fleet.py        the other kas: joins the five below
    directory/      which kas holds which agent, as far as is known
    redis/          where all of them write that down
    peers.py        sessions to them; own_address.py: what they dial
    gateway.py      what they may ask of this one
    balance.py      agents are sent to them

    external/       calls of GitLab: Connect and gRPC
    jwt.py          the tokens of both, and their secrets
    identity*.py    who may connect and ask: the identity file
    observability.py metrics.py   health, metrics and status over HTTP
    state.py pki.py running.py control.py ctl/
                    the state directory: certificates, who runs, and `kasctl`

    agentk ==TLS==> agents.py -> registry.py <- routing.py <- modules.py <- modules
    other kas <==TLS==> gateway.py, peers.py ------^
"""
