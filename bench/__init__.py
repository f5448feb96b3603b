"""
Benchmarks of kas and agentk, as ratios to floors that are measured in the same run.

    __main__.py   runs the cases, prints the table, writes build/bench.json
    cases.py      the cases and their targets
    stand.py      the programs under test, started for one run
    processes.py  processes: start, stop, CPU and memory from /proc
    servers.py    floors and upstreams: python -m bench.servers NAME ...
    fleet.py      cases with several kas and Redis
    peers.py      cases that compare txkas with other tunnels
    hops.py       calls of our code for one GET: python -m bench.hops
    workers.py    several workers of one kas, compared with one process
    share.py      a fraction of a core for a process
    git.py        ways to read Git, compared: python -m bench.git
    gitops.py     a commit into a real cluster, compared with kubectl:
                  python -m bench.gitops
    gitops_drift.py
                  time until drift is detected: python -m bench.gitops_drift
    crowd.py      a hundred thousand agents of one kas: python -m bench.crowd

Requests, downloads, watches and light agents come from tools/load.

Machines of one kind differ by a factor of three, so a figure means something only
together with its floor.  ``NICE=10`` lowers the priority of the client that floods, as
if it ran on another machine.  Figures and floors are measured in turn, and their
medians are compared.
"""
