"""
HTTP by twisted.web, bounded.

    requests.py   requests whose size and time are bounded
    draining.py   a listener that ends in order
"""
