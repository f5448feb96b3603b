"""
The server: accepts agents, and carries requests to them.

    tap.py          `twistd kas`: options, and the service that they make
    service.py      the service tree: the only place that wires the parts together, and
                    the order in which they stop
    modules.py      what a server half of a module gets
    http_client.py  requests to other servers
    request_queue.py  requests to other servers, at a rate that is set
    missing.py      what is said where kas is installed without all that it needs

    config/         the configuration file
    identity/       who may connect and ask
    gitlab/         GitLab, as the one who knows agents
    oidc/           people whom an identity provider signs in
    git/            Git repositories, as modules read them
    agents/         the agents that are connected here
    directory/      which kas holds which agent, as far as is known
    redis/          the client of the store in which all kas write that down
    fleet/          the other kas
    routing/        from "a stream to agent 7" to the path that it takes
    api/            the external API: Connect and gRPC
    storage/        where modules' stores are kept
    web/            the listener for modules' pages, and bounded requests
    workers/        several processes that are one kas
    observability/  health, metrics, status and the audit log
    state/          the state directory: certificates, who runs
    ctl/            `kasctl`
    pb/             messages between kas

    agentk ==TLS==> agents -> registry <- routing <- modules.py <- modules
    other kas <==TLS==> fleet -----------^
"""

import tunnel  # noqa: F401 - decides whether compiled modules run
