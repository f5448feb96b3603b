"""
The audit logs of the clusters' API servers, beside the audit log of kas.

    wire/     messages of both halves
    agent/    agentk's half: reads the events of the API server, and sends them
    server/   kas' half: stores them in a file for each agent

    API server -> file or webhook -> agent/ ==tunnel==> server/ -> files

`kasctl audit search --cluster-log` joins these files with kas' own log by audit ids.
"""
