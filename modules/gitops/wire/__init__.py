"""
Definitions that both halves of GitOps share.

    rpc.proto       requests of agentk to kas, with GitLab's names and numbers
    control.proto   requests of operators to agentk
    reports.proto   reports of agentk to kas: drift, prunes, failing projects
    settings.py     ``gitops`` in the agent's file: the projects and their settings
    commit_id.py    ids of commits
    fingerprint.py  the digest of the files of a commit
    effect.py       effects on an object, as a preview names them
"""
