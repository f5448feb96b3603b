"""
HTTP by twisted.web: modules' pages and webhooks, and what bounds any request.

    listener.py   the listener that modules' pages share
    requests.py   requests that are bounded, for this listener and the external API
    draining.py   a listener that ends in order, and its open connections, for both
"""
