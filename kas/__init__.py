"""
The server: accepts agents, and carries requests to them.

    tap.py          `twistd kas`: its options and its service
    service.py      the service tree: the only place that wires the parts together, and
                    the order in which they stop
    credentials.py  the authenticators that the configuration selects
    operations.py   commands and queries of kasctl for a running kas
    http_client.py  requests to other servers
    request_queue.py  requests to other servers, at a limited rate
    missing.py      messages about missing packages

    config/         the configuration file
    identity/       agents that may connect, and users
    gitlab/         GitLab as the source of agents and users
    oidc/           users whom an identity provider signs in
    git/            Git repositories, as modules read them

    agents/         the agents that are connected here
    directory/      the agents that are connected to other kas
    redis/          the Redis client of the directory
    fleet/          the other kas
    routing/        the path of a stream to an agent

    api/            the external API: Connect and gRPC
    storage/        the stores of modules
    web/            the listener for modules' pages, and requests with limits
    modules/        the API of a module's server half
    workers/        several processes that are one kas
    audit/          the audit log
    observability/  health, metrics and status
    state/          the state directory: certificates, running processes
    ctl/            `kasctl`
    pb/             messages between kas

    agentk ==TLS==> agents -> registry <- routing <- modules/ <- server halves
    other kas <==TLS==> fleet -----------^
"""

import tunnel  # noqa: F401 - decides whether compiled modules run
