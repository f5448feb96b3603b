"""
Load for ``bench/`` and for the experiments of ``tests/faults/``.

    clients.py     starts the processes below, and sends them commands
    agents.py      many light agents in one process: real tunnels, responses from memory
    requests.py    requests at a fixed rate, created objects, watches; their failures
    connection.py  one connection of these requests
    churn.py       requests whose clients leave
    speed.py       maximum speed: wrk, sequential latencies, downloads, watches
    manifests.py   objects for GitOps

agents.py, requests.py, churn.py and speed.py run as processes of their own, with their
settings as JSON in the arguments.  Except in speed.py, every line on standard input is
a command in JSON and gets one line of JSON in response; when the input ends, so does
the process.
"""
