"""
The Kubernetes API server beside agentk.

    cluster.py          where it is, how agentk speaks to it; the token of a service
                        account, read again when its file changes
    kubeconfig.py       what a kubeconfig says about that
    exec_credential.py  credentials that a program gives
    version.py          which version it is
    reachability.py     whether it answers, for the log, status and kas
"""
