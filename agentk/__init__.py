"""
The agent: keeps a connection to kas and answers what comes through it.

    tap.py        `twistd agentk`: options, and the service that they make
    config.py     what the options mean, and where the token comes from
    service.py    the service tree; the only place that wires the parts together
    dialer.py     connects to kas, and again when the connection is gone
    extra_tunnels.py  and a second way to each kas that is busy with us
    diagnosis.py  why it cannot
    leader_election.py  which of an agent's agentk leads, by a Lease
    modules.py    what an agent half of a module gets
    state_reports.py  tells kas how the cluster and the modules are
    health.py     /liveness, /readiness and /metrics
    metrics.py    what is counted of the tunnel
    kubernetes/   the Kubernetes API server

Small on purpose: what can be decided in kas is decided there.
"""

import tunnel  # noqa: F401 - decides whether compiled modules run
