"""
HTTP by twisted.web: pages and webhooks of modules, and limits of requests.

    listener.py   the listener that modules' pages share
    requests.py   requests with limits, for this listener and the external API
    handed_over.py  connections whose next request another protocol handles
    draining.py   a listener that drains, and its open connections, for both
"""
