"""
``make demo``: the main job of kas on one machine, step by step and with times.

It starts kas, one agentk and a Kubernetes API, reaches the latter through the tunnel as
kubectl would, and stays until Ctrl-C, for you to try.

    __main__.py   options, the course of it, and the end
    screen.py     what you see
    processes.py  programs that end when the demo does
    stopping.py   Ctrl-C and signals
    ports.py      whether the ports of kas are free, and who has them
    cluster.py    which Kubernetes API it is: yours, a real one, or the sandbox
    stack.py      kas, agentk and kasctl
    client.py     the client: the kubernetes library, with a kubeconfig of kasctl
    steps.py      what is done through the tunnel
    gitlab.py     the same with GitLab: `make demo GITLAB=1`
    sandbox/      a stand-in for a Kubernetes API server
"""
