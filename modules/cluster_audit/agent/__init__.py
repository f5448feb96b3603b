"""
agentk's half of audit logs of API servers.

    module.py        the module: reads the log, and sends its events to kas
    follower.py      the log from the place that kas has
    log_files.py     the files of the log, also after a rotation
    webhook.py       the same, from requests of the API server
    events.py        the part of an event that kas gets
    event_filter.py  events without the bodies that clients make large
"""
