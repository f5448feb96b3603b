"""
Git repositories, as modules read them (`tunnel.api.IRepository`).

    limits.py        what a repository, and its server, may cost
    names.py         refs, commits and paths that are safe to hand to git
    program.py       the git program: a child that is bounded, and can be killed
    objects.py       reads commits, trees and files in a folder with a repository
    local.py         a repository of this machine
    http.py          a repository of a Git server, fetched into a folder of kas
    gitaly.py        a repository of GitLab, read through Gitaly
    outcomes.py      counts of requests to git and Gitaly, by outcome
    pieces.py        long lists in pieces, with other work of kas in between
    metrics.py       these counts for Prometheus
    ref_resolver.py  one request at a time, shared by its callers
    repositories.py  the repositories, one object each
    part.py          the repositories, as a part of kas

The git program reads, and no library in kas.  On a repository of 20,000 files
(``python -m bench.git``) dulwich takes ten times as long for a listing and for a fetch,
and holds the interpreter, and so every tunnel, meanwhile.  pygit2 is as fast as git and
faster for one small file, but it uses the memory of kas, and kas can neither limit nor
end a thread that parses content pushed by a stranger; git is a child process with
limits of memory, time and file size, and kas kills it when it takes too long.  Its
price is three milliseconds for a process.  Nothing of a repository is ever run: no
working tree, no hook, no submodule, no filter, and no protocol but HTTP.
"""
