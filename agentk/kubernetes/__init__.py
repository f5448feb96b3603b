"""
The Kubernetes API server of agentk's cluster.

    cluster.py          access to it: TLS, and a token that is read again when its file
                        changes
    kubeconfig.py       its address and credentials, from a kubeconfig or a pod
    exec_credential.py  credentials that a program prints
    version.py          its version
    reachability.py     checks whether it responds, for the log, the status and kas
"""
