"""
Receives notifications of pushes to repositories, and forwards them to every kas;
broadcasts live data to the browsers of a Rails server.

    server.py    kas' half; agentk needs none
    webhook.py   the page that Git servers call
    rpc.proto    the service that GitLab calls, with GitLab's names and numbers
    event.proto  messages of that service
    broadcasts.py          broadcasts of rows through the Redis of a Rails server
    broadcast_settings.py  their settings
    waiting_rows.py        the latest rows that wait to be broadcast
"""
