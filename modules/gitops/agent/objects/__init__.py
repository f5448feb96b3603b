"""
Objects of Kubernetes as GitOps reads and compares them.

    documents.py      YAML and JSON text as the values that kubectl reads from it
    manifests.py      the objects of a source, each with its place in a file
    control_plane.py  fields that the control plane writes, regardless of Git
    ignored.py        fields that a project leaves to other clients
    differences.py    differences between an object and its manifest
    ownership.py      field managers of an object that was applied before
    live.py           objects as they are in the cluster now
    prune_guards.py   guards that stop deletes
"""
