"""
kas' half of audit logs of API servers.

    module.py    the module: events from agentk, and the places of logs
    files.py     the files of one agent
    lines.py     events as lines
"""
