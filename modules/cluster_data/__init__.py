"""
Live data of clusters: agentk derives rows from the objects of its cluster.  kas keeps
the last rows of all clusters, and answers queries without a request to any cluster.

    agent/   the cache and its views, and their publication to kas
    server/  the store of rows, rights of readers, and queries
    wire/    messages between agentk, kas and readers
"""
