"""
Real processes, real TLS, a real API server: what only shows when all of it runs.

    needs.py        what a test needs that may be missing here, and how to get it
    processes.py    start a program, wait for what it says, stop it
    cluster.py      the control plane of tests/kube, and its audit log
    stack.py        `twistd kas` and `twistd agentk` before that control plane
    module_kas.py   a kas that stands alone, with a module of the tests
    identity_providers.py  a real identity provider; browser.py fills in its forms
    kubectl.py      kubectl as a child, and on a terminal
    rawhttp.py      HTTP/1.1 byte by byte, over TLS
    objects.py      what is sent to an API server to make something
    differences.py  how an answer through kas may differ from the API server's own
    redisserver.py  a real Redis
    redisclients.py our client of one ...
    directories.py  ... and directories that share one

Nearly everything is done twice: straight at the API server, and through kas and agentk.
What counts is that nobody can tell the two apart.
"""
