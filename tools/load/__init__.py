"""
Load for ``bench/`` and for the experiments of ``tests/faults/``.

    clients.py     starts and asks the processes below
    agents.py      many light agents in one process: real tunnels, answers from memory
    requests.py    requests at a rate, objects that are made, watches: what fails ...
    connection.py  ... each on one of these
    churn.py       requests whose clients leave
    speed.py       as fast as it goes: wrk, latencies one by one, downloads, watches
    manifests.py   objects for GitOps

Each but the last two is a process of its own, with its settings as JSON in its
arguments.  Every line on its standard input is a command in JSON and gets one line of
JSON; when the input ends, so does it.
"""
