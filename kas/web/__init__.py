"""
HTTP with twisted.web: modules' pages and webhooks, and limits for all requests.

listener.py   the listener that modules' pages share requests.py   requests with limits,
for this listener and the external API draining.py   a listener that drains its open
connections, for both
"""
