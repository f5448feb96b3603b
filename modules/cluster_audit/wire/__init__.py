"""
Data that both halves of the module ``cluster_audit`` share.

    cluster_audit.proto  events of API servers, and the places up to which kas has them
"""
