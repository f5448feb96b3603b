"""
The agent: keeps a connection to kas and answers requests through it.

tap.py        `twistd agentk`: options, and the service that they create config.py
the meaning of the options, and the source of the token service.py    the service tree;
the only place that wires the parts together dialer.py     connects to kas, and
reconnects after a loss extra_tunnels.py  a second tunnel to each kas with many requests
for this agent diagnosis.py  explains why a connection failed leader_election.py  elects
the leader among an agent's agentk, with a Lease modules.py    the API of a module's
agent half state_reports.py  reports the state of the cluster and the modules to kas
health.py     /liveness, /readiness and /metrics metrics.py    metrics of the tunnel
kubernetes/   the Kubernetes API server

It is small on purpose: kas makes all decisions that it can.
"""

import tunnel  # noqa: F401 - decides whether compiled modules run
