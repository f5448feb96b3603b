"""
The agent: keeps a connection to kas, and handles the requests that arrive through it.

    tap.py        `twistd agentk`: options, and the service that they create
    config.py     settings from the options, the configuration file and the token
    service.py    the service tree; the only place that wires the parts together
    dialer.py     connects to kas, and reconnects
    extra_tunnels.py  extra tunnels to kas that relay many requests
    diagnosis.py  explanations of a missing connection
    leader_election.py  election of a leader among an agent's replicas, by a Lease
    modules.py    the API of agent halves of modules
    state_reports.py  reports of the state of the cluster and of modules to kas
    health.py     /liveness, /readiness and /metrics
    metrics.py    metrics of the tunnel
    kubernetes/   the Kubernetes API server
    policy/       the policy of the cluster's owner

agentk is small on purpose: kas makes every decision that it can make.
"""

import tunnel  # noqa: F401 - decides whether compiled modules run
