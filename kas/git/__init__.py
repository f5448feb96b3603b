"""
Git repositories, as modules read them (`tunnel.api.IRepository`).

limits.py        limits on the resources that a repository may use names.py refs,
commits and paths that are safe to pass to git program.py       the git program: a child
process with limits, which can be killed objects.py       reads commits, trees and files
in a folder with a repository local.py         a repository on this machine http.py a
repository on a Git server, fetched into a folder of kas gitaly.py        a repository
in GitLab, read through Gitaly outcomes.py      counts of requests to git and Gitaly, by
outcome pieces.py        processes long lists in pieces, with other work of kas in
between metrics.py       these counts for Prometheus ref_resolver.py  one request at a
time, shared by its callers repositories.py  the repositories, one object each part.py
the repositories, as a part of kas

kas reads with the git program, not with a library.  On a repository of 20,000 files
(``python -m bench.git``) dulwich takes ten times as long for a listing and for a fetch,
and blocks the interpreter, and so every tunnel, in the meantime.  pygit2 is as fast as
git and faster for one small file, but it uses the memory of kas, which can neither
limit nor end a thread that parses untrusted content. git is a child process with limits
of memory, time and file size, and kas kills it when it takes too long. Its cost is
three milliseconds for each process. Nothing in a repository is ever run: no working
tree, hook, submodule or filter, and no protocol except HTTP.
"""
