"""
Git repositories, as modules read them (`tunnel.interfaces.IRepository`).

    limits.py        what a repository, and its server, may cost
    names.py         refs, commits and paths that are safe to hand to git
    program.py       the git program: a child that is bounded, and can be killed
    objects.py       reads commits, trees and files in a folder with a repository
    local.py         a repository of this machine
    http.py          one at a Git server, fetched into a folder of kas
    gitaly.py        one of GitLab, read where it is
    outcomes.py      how often git and Gitaly were asked, and how it ended
    metrics.py       that, for Prometheus
    turns.py         one fetch at a time, shared by all who wait for it
    repositories.py  each repository once, whoever asks for it

The git program reads, and no library in kas.  On a repository of 20,000 files
(``python -m bench.git``) dulwich takes ten times as long for a listing and for a fetch,
and holds the interpreter, and so every tunnel, meanwhile.  pygit2 is as fast as git and
faster for one small file, but its memory is that of kas, and a thread that parses what
a stranger pushed can be neither bounded nor ended; git is a child with limits of
memory, time and file size, which is killed when it takes too long.  The price is three
milliseconds for a process.  Nothing of a repository is ever run: there is no working
tree, no hook, no submodule, no filter, and no protocol but HTTP.
"""
