"""
``make demo``: the main tasks of kas on one machine, step by step, with times.

It starts kas, one agentk and a Kubernetes API, uses this API through the tunnel as
kubectl would, and then runs until Ctrl-C, so that you can try it.

    __main__.py   options, the sequence of steps, and the end
    screen.py     output on the terminal
    processes.py  programs that end when the demo does
    stopping.py   Ctrl-C and signals
    ports.py      free ports, and the owners of used ports
    cluster.py    choice of the Kubernetes API: yours, a real one, or the sandbox
    stack.py      kas, agentk and kasctl
    client.py     the client: the kubernetes library, with a kubeconfig from kasctl
    story.py      the steps of a demo with a story of its own
    steps.py      the steps through the tunnel
    gitlab.py     the demo with GitLab: `make demo GITLAB=1`
    live.py       the demo of live data: `make demo LIVE=1`
    page.py       the demo of the page: `make demo PAGE=1`
    governance.py  the demo of the policy and the audit log: `make demo GOVERNANCE=1`
    gitops.py     the demo of GitOps: objects from a Git repository
    sandbox/      a small imitation of a Kubernetes API server
"""
