"""
Messages of both halves.

    cluster_data.proto  rows from agentk to kas, and access reviews
    fleet.proto         queries about all clusters
    peers.proto         rows that kas ask each other for
    view_names.py       names of views
    safe_links.py       addresses that a page may offer as links
    row_sum.py          the sum that agentk and kas compare instead of rows
"""
