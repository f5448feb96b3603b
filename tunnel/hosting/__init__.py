"""
The modules of one program: found, made, started, restarted.

    modules.py      configured, made, started, and made again after a failure
    context.py      what both programs give to every module
    events.py       topics within one program
    stores.py       what server halves store, wherever it is kept
    pages.py        what server halves serve over HTTP, by prefix
"""
