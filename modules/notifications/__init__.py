"""
Hears that somebody pushed to a repository, and tells every kas.

    server.py    the half in kas; there is none in agentk
    webhook.py   the page that Git servers call
    rpc.proto    what GitLab calls, with GitLab's names and numbers
    event.proto  what it says, likewise
"""
