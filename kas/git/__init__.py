"""
Git repositories, as modules read them (`tunnel.api.IRepository`).

    limits.py        limits on the cost of a repository and its server
    names.py         refs, commits and paths that are safe to pass to git
    program.py       the git program: a child process with limits, which kas can kill
    objects.py       reads commits, trees and files in a folder with a repository
    local.py         a repository on this machine
    http.py          a repository on a Git server, fetched into a folder of kas
    gitaly.py        a repository of GitLab, read through Gitaly
    outcomes.py      counts of requests to git and Gitaly, by outcome
    pieces.py        processing of long lists in pieces, between other work of kas
    metrics.py       these counts for Prometheus
    ref_listing.py   lists of refs that git prints, with exact names
    live_refs.py     the refs of a copy that callers follow, fetched in groups
    ref_resolver.py  one request at a time, shared by its callers
    repositories.py  the repositories, one object each
    part.py          the repositories, as a part of kas

kas reads repositories with the git program instead of a library.  On a repository of
20,000 files (``python -m bench.git``) dulwich takes ten times as long for a listing and
for a fetch, and holds the interpreter, and so every tunnel, in the meantime.  pygit2 is
as fast as git and faster for one small file, but it uses the memory of kas, and kas can
neither limit nor end a thread that parses untrusted content; git is a child process
with limits of memory, time and file size, and kas kills it when it takes too long.
Each process costs three milliseconds.  No content of a repository is ever executed: kas
uses no working tree, no hook, no submodule, no filter, and no protocol except HTTP.
"""
