"""
What is in a Git repository lives in the cluster.

    config.py       which repositories agents may read, in kas' file, and limits
    globs.py        which files of a repository belong to a source
    refs.py         what a branch is at, and when that changes
    files.py        the files of a source at a commit
    links.py        ... and those that symbolic links lead to
    turns.py        turns of such searches, between other work of kas
    fingerprint.py  what both halves know those files by
    server.py       the half in kas: sends agentk the files of a source
    rpc.proto       what agentk asks, with GitLab's names and numbers
    control.proto   what people ask of agentk
    control_server.py    in kas: passes that to the agentk that leads
    control.py      in agentk: answers it
    settings.py     ``gitops`` in the agent's file: which projects, and how
    agent.py        the half in agentk: all projects, while it leads
    project.py      one project: when it is worked on, and what people say of it
    commits.py      the commits of a project, as kas sends them, each read once
    dependencies.py which projects wait for which others
    leftovers.py    objects of inventories that no project has any more
    pruned.py       reports prunes to kas's audit log
    receivers.py    tells objects of Flux and Argo CD of commits
    handover.py     objects that go from one of these to another
    claims.py       ... and to other agents of the cluster
    snapshot.py     the files of one commit, whole or not at all
    reconcile.py    from the files of a commit to the cluster, once
    documents.py    YAML and JSON text as the values that kubectl reads from it
    rendering.py    what kustomize and Helm make of those files
    helm_versions.py
                    which API versions charts see
    decryption.py   Secrets that SOPS encrypted
    folder.py       where those programs find files
    child_processes.py
                    runs them as processes, with limits
    launcher.py     sets those limits in the process, and takes the network away
    manifests.py    the objects of a source, each with its place in a file
    control_plane.py
                    fields that the control plane writes, whatever Git has
    resolve.py      the same with the names that they have in the cluster
    order.py        which objects have to be there before which
    inventory.py    which objects are in the cluster because of a source
    own_secret.py   a Secret that only agentk writes
    orders.py       orders of operators, and the history, in such a Secret
    commit_id.py    ids of commits
    writer.py       which agentk wrote that last
    prune_guards.py  guards that stop deletes
    listing.py      looks at many objects with one request
    plan.py         what has to be done
    act.py          does it
    backups.py         states of objects before they were deleted or adopted, likewise
    recreate.py     objects that can be changed only by creating them again
    refusal.py      what the API server says of an object that it refuses
    conflicts.py    who has the fields for which it does
    allowance.py    how often something may happen
    reports.py      tells kas, and the objects themselves, of drift
    failing.py      tells kas which projects fail
    reports.proto   what agentk tells kas
    reported.py     takes that in kas
    webhooks.py     passes it on, in kas
    alerts.py       ... as an alert of GitLab
    metrics.py      what agentk counts of its projects
    messages.py     objects and their drift as messages
    drift.py        what others have changed since then
    change_authors.py       who did, of those that came through kas
    audit_log.py    ... and of those that did not, as the API server says
    watches.py      watches on the kinds of all projects, metadata alone
    differences.py  how an object differs from what Git wants of it
    ignored.py      fields that a project leaves to others
    ownership.py    whose fields an object's are that was applied before
    preview.py      what it would change, and changes nothing
    merge_requests.py  in kas: previews of merge requests, once GitLab says there is one
    comments.py     ... and the comment there that tells them
    comment_text.py what it says
    threads.py      threads that read texts of repositories
    parallel.py     several requests at the same time, and no more than so many
    pause.py        the pause before kas is asked again
    health.py       whether an object has become what its specification says

    Git -> refs.py -> files.py -> server.py ==tunnel==> snapshot.py -> manifests.py
    -> resolve.py, order.py -> plan.py (inventory.py, prune_guards.py)
    -> act.py (health.py)
"""
