"""
Input and output of many connections.

    poller.py       the sockets that carry requests, polled together
    flusher.py      one flush per reactor turn
"""
