"""
A small stand-in for a Kubernetes API server: what the demo talks to without a cluster.

It is no Kubernetes.  A handful of objects live in memory, and ``exec`` starts a
process of this machine, as the user who runs the demo.  It listens on loopback only,
speaks TLS, and asks for a token that only its kubeconfig has.

    api.py        HTTP: which token, for what, and the answer; what is there
    feeds.py      ``watch``, ``logs`` and ``logs -f``
    execution.py  ``exec``: a WebSocket, and the process at its other end

The objects are those of `tunnel.testing`.
"""
