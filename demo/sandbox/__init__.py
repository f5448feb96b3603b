"""
A small stand-in for a Kubernetes API server: what the demo talks to without a cluster.

It is no Kubernetes.  A handful of objects live in memory, and ``exec`` starts a
process of this machine, as the user who runs the demo.  It listens on loopback only,
speaks TLS, and asks for a token that only its kubeconfig has.

    status.py     errors
    store.py      objects, versions, what changed
    selectors.py  ``fieldSelector`` and ``labelSelector``
    tables.py     the columns of ``kubectl get``
    discovery.py  which resources there are
    seed.py       what is there at the start
    api.py        HTTP: who asks, for what, and the answer
    protobuf.py   bodies as kubectl sends them
    feeds.py      answers that go on
    watching.py   ``watch``
    podlogs.py    ``logs`` and ``logs -f``
    channels.py   the WebSocket of ``exec``, ``v4`` and ``v5.channel.k8s.io``
    execution.py  the process at its other end
"""
