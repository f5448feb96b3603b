"""
What is in a Git repository lives in the cluster.

    documents.py    YAML and JSON text as the values that kubectl reads from it
    manifests.py    the objects of a source, each with its place in a file
    globs.py        which files of a repository belong to a source
    order.py        which objects have to be there before which
    health.py       whether an object has become what its specification says

    Git -> globs.py ==tunnel==> documents.py -> manifests.py -> order.py
"""
