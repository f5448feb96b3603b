"""
The Kubernetes API server of agentk's cluster.

cluster.py          access to the API server; a service account's token is read again
when its file changes kubeconfig.py       the settings of a kubeconfig for that
exec_credential.py  credentials from a plugin version.py          the version of the API
server reachability.py     whether it responds, for the log, status and kas
"""
