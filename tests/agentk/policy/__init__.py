"""The policy of the cluster's owner."""
