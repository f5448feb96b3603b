"""
Objects of Kubernetes as GitOps reads and compares them.

    documents.py      YAML and JSON text as the values that kubectl reads from it
    manifests.py      the objects of a source, each with its place in a file
    control_plane.py  fields that the control plane writes, whatever Git has
    ignored.py        fields that a project leaves to other clients
    differences.py    how an object differs from its manifest
    ownership.py      field managers of an object that was applied before
    health.py         whether an object has become what its specification says
    live.py           objects as the cluster has them now
    prune_guards.py   guards that stop deletes
"""
