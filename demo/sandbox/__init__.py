"""
A small stand-in for a Kubernetes API server: what the demo talks to without a cluster.

It is no Kubernetes.  A handful of objects live in memory, and ``exec`` starts a
process of this machine, as the user who runs the demo.  It listens on loopback only,
speaks TLS, and asks for a token that only its kubeconfig has.

    store.py      objects, versions, what changed; errors
    seed.py       what is there at the start
    api.py        HTTP: which token, for what, and the answer
    feeds.py      ``watch``, ``logs`` and ``logs -f``
    channels.py   the WebSocket of ``exec``, ``v5.channel.k8s.io``
    execution.py  the process at its other end
"""
