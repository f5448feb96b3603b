"""
How fast it is, as ratios to floors that are measured in the same run.

    __main__.py   runs the cases, prints the table, writes build/bench.json
    cases.py      the cases and their targets
    stand.py      the programs under test, started for one run
    processes.py  processes: start, stop, CPU and memory from /proc
    servers.py    floors and upstreams: python -m bench.servers NAME ...
    hops.py       calls of our code for one GET: python -m bench.hops
    workers.py    several workers of one kas, beside one process
    share.py      a part of a core for a process
    git.py        ways to read Git, compared: python -m bench.git
    gitops.py     a commit into a real cluster, beside kubectl: python -m bench.gitops
    gitops_drift.py
                  how soon drift is seen: python -m bench.gitops_drift
    crowd.py      a hundred thousand agents of one kas: python -m bench.crowd

Requests, downloads, watches and light agents come from tools/load.

Machines of one kind differ by a factor of three, so no figure means anything but beside
its floor.  ``NICE=10`` makes the client of a flood give way to what it loads, as one
on another machine would.  Figures and floors alternate, and medians are compared.
"""
