"""
PromQL: the Prometheus API of a cluster, and of several clusters, through the tunnel.

    client --HTTP--> server/ (kas) --stream--> agent/ (agentk) --HTTP--> Prometheus

    agent/   finds Prometheus in the cluster, reviews the user's right, and asks it
    server/  checks requests of users, forwards them, and merges answers of clusters
    wire/    messages and settings of both halves
"""
