"""
Messages and settings of both halves.

    prometheus.proto  questions of kas to agentk
    endpoints.py      the part of Prometheus' API that users may request
    settings.py       the section ``prometheus`` of the agent's configuration in Git
"""
