"""
Objects of Kubernetes as GitOps reads and compares them.

    documents.py          YAML and JSON text as the values that kubectl reads from it
    manifests.py          the objects of a source, each with its place in a file
    control_plane.py      fields that the control plane writes, regardless of Git
    ignored.py            fields that a project leaves to other clients
    differences.py        an object against its manifest; masks the values of Secrets
    field_takeover.py     takeover of the fields that other tools applied before
    live.py               objects as they are in the cluster now
    owner_annotations.py  which inventory or engine owns a live object
    error_statuses.py     errors of the API server that say nothing about an object
    prune_guards.py       guards that stop deletes, and limits on a source's deletes
"""
