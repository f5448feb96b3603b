"""
A small imitation of a Kubernetes API server, for demos without a cluster.

The sandbox is not Kubernetes.  It has a handful of objects in memory, and ``exec``
starts a process on this machine, as the user who runs the demo.  It listens on loopback
only, uses TLS, and requires a token that only its kubeconfig contains.

    api.py        HTTP requests: tokens, objects and responses
    feeds.py      ``watch``, ``logs`` and ``logs -f``
    execution.py  ``exec``: a WebSocket, and the process at its other end

The objects are from `tunnel.testing`.
"""
