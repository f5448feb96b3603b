"""
What is in a Git repository lives in the cluster.

    config.py       which repositories agents may read, in kas' file, and limits
    globs.py        which files of a repository belong to a source
    refs.py         what a branch is at, and when that changes
    files.py        the files of a source at a commit
    server.py       the half in kas: sends agentk the files of a source
    rpc.proto       what agentk asks, with GitLab's names and numbers
    documents.py    YAML and JSON text as the values that kubectl reads from it
    manifests.py    the objects of a source, each with its place in a file
    order.py        which objects have to be there before which
    health.py       whether an object has become what its specification says
    snapshot.py     the half in agentk: the files of one commit, whole or not at all
    inventory.py    which objects are in the cluster because of a source

    Git -> refs.py -> files.py -> server.py ==tunnel==> manifests.py -> order.py
"""
